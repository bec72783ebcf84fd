/*
 * rsdial measures what connections of rsockets cost: a client connects, has 64 bytes
 * echoed and closes, one after the other or all at once. The library has no program for
 * that, and programs of Go cannot be run over it.
 *
 *   rsdial -s ADDRESS PORT                 serves
 *   rsdial -c ADDRESS PORT COUNT           COUNT connections, one after the other
 *   rsdial -a ADDRESS PORT COUNT           COUNT connections at once, each in a thread
 *
 * A client prints "seconds S failed F".
 */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <rdma/rsocket.h>

enum { message = 64 };

static struct sockaddr_in address;

static int all(int fd, char *buf, int sending)
{
	size_t done = 0;

	while (done < message) {
		ssize_t n = sending ? rsend(fd, buf + done, message - done, 0)
				    : rrecv(fd, buf + done, message - done, 0);
		if (n <= 0)
			return -1;
		done += n;
	}
	return 0;
}

static void *echo(void *arg)
{
	int fd = (int)(long)arg;
	char buf[message];

	while (!all(fd, buf, 0) && !all(fd, buf, 1))
		;
	rclose(fd);
	return NULL;
}

static int serve(void)
{
	int fd = rsocket(AF_INET, SOCK_STREAM, 0), on = 1;

	if (fd < 0 || rsetsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
	    rbind(fd, (struct sockaddr *)&address, sizeof address) || rlisten(fd, 4096)) {
		perror("rsdial: listen");
		return 1;
	}
	for (;;) {
		pthread_t thread;
		int conn = raccept(fd, NULL, NULL);

		if (conn < 0)
			continue;
		if (pthread_create(&thread, NULL, echo, (void *)(long)conn))
			rclose(conn);
		else
			pthread_detach(thread);
	}
}

/* client returns NULL if all went well. */
static void *client(void *arg)
{
	char buf[message] = {0};
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);
	void *failed = &address;

	(void)arg;
	if (fd < 0)
		return failed;
	if (!rconnect(fd, (struct sockaddr *)&address, sizeof address) &&
	    !all(fd, buf, 1) && !all(fd, buf, 0))
		failed = NULL;
	rclose(fd);
	return failed;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
	int count = argc == 5 ? atoi(argv[4]) : 0, failed = 0, i;
	double began;

	if (argc < 4 || (argv[1][1] != 's' && count <= 0)) {
		fprintf(stderr, "rsdial: -s ADDRESS PORT, or -c or -a ADDRESS PORT COUNT\n");
		return 2;
	}
	address.sin_family = AF_INET;
	address.sin_port = htons(atoi(argv[3]));
	if (inet_pton(AF_INET, argv[2], &address.sin_addr) != 1)
		return 2;
	if (argv[1][1] == 's')
		return serve();
	began = now();
	if (argv[1][1] == 'c') {
		for (i = 0; i < count; i++)
			failed += client(NULL) != NULL;
		if (failed == count) {
			fprintf(stderr, "rsdial: Connection refused\n");
			return 1;
		}
	} else {
		pthread_t *threads = calloc(count, sizeof *threads);

		if (client(NULL)) { /* the server is not there yet */
			fprintf(stderr, "rsdial: Connection refused\n");
			return 1;
		}
		began = now();
		for (i = 0; i < count; i++)
			if (pthread_create(&threads[i], NULL, client, NULL)) {
				threads[i] = 0;
				failed++;
			}
		for (i = 0; i < count; i++) {
			void *bad = NULL;

			if (threads[i] && !pthread_join(threads[i], &bad))
				failed += bad != NULL;
		}
	}
	printf("seconds %.6f failed %d\n", now() - began, failed);
	return 0;
}
