/* Looks at a file all the time, in the mount namespace of a process: watch PID FILE STOP.
 *
 * Counts each moment at which FILE is not empty and can be opened for writing, or lacks nosuid or nodev. Says "ready",
 * ends when STOP exists, and prints: times seen, times open for writing, times without a flag. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char name[64];
	unsigned long seen = 0, written = 0, flags = 0, turn = 0;
	struct stat status;
	struct statvfs system;
	if (argc != 4)
		return 2;
	snprintf(name, sizeof name, "/proc/%s/ns/mnt", argv[1]);
	int space = open(name, O_RDONLY | O_CLOEXEC);
	if (space < 0 || setns(space, CLONE_NEWNS)) {
		perror("watch");
		return 1;
	}
	puts("ready");
	fflush(stdout);
	while (++turn % 256 || access(argv[3], F_OK)) {
		int fd = open(argv[2], O_WRONLY | O_CLOEXEC | O_NONBLOCK);
		if (fd >= 0) {
			if (!fstat(fd, &status) && status.st_size > 0)
				written++;
			close(fd);
		}
		fd = open(argv[2], O_PATH | O_CLOEXEC);
		if (fd < 0)
			continue;
		if (!fstat(fd, &status) && status.st_size > 0 && !fstatvfs(fd, &system)) {
			seen++;
			if (!(system.f_flag & ST_NOSUID) || !(system.f_flag & ST_NODEV) || !(system.f_flag & ST_RDONLY))
				flags++;
		}
		close(fd);
	}
	printf("%lu %lu %lu\n", seen, written, flags);
	return 0;
}
