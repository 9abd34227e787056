/* Leaves a mark when it is run or loaded: in a folder of the host, or, out of reach of it, at the root that it sees. */
#include <fcntl.h>
#include <unistd.h>

static volatile char where[1024] = "@MARK@";

__attribute__((constructor)) static void leave_a_mark(void)
{
	int fd = open((const char *)where, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (fd < 0)
		fd = open("/MARKED", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (fd >= 0 && write(fd, "x", 1) == 1)
		close(fd);
}

#ifndef SHARED
int main(void)
{
	return 0;
}
#endif
