/* Exchanges two names for ever, in pairs, so that both are back after each turn: exchange ONE OTHER [STOP].
 *
 * It says "ready" when both can be exchanged, and ends when a file STOP exists, or its parent has ended. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

static long swap(const char *one, const char *other)
{
	return syscall(SYS_renameat2, -100, one, -100, other, 2);
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	if (argc == 3)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (swap(argv[1], argv[2]) || swap(argv[1], argv[2])) {
		perror("exchange");
		return 1;
	}
	puts("ready");
	fflush(stdout);
	for (unsigned long turn = 0;; turn++) {
		swap(argv[1], argv[2]);
		swap(argv[1], argv[2]);
		if (argc > 3 && turn % 256 == 0 && access(argv[3], F_OK) == 0)
			return 0;
	}
}
