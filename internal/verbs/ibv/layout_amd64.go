//go:build linux && !noverbs

package ibv

const (
	mutexSize = 40  // sizeof(pthread_mutex_t)
	qpSize    = 160 // sizeof(struct ibv_qp)
)
