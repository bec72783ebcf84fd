//go:build linux && !noverbs

package ibv

const (
	mutexSize = 48  // sizeof(pthread_mutex_t)
	qpSize    = 168 // sizeof(struct ibv_qp)
)
