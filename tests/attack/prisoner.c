/* Stands for ldconfig: tries what a captured helper would try, and tells of it in the cache that it writes.
 *
 *   prisoner -X -i -f FILE -C OUTPUT
 *
 * Each entry of the cache is a fact, such as `uid=0` or `mount=EPERM`; its path is /fact/ and the fact. The strings that
 * begin with @ are filled in: paths of the host that must not be there. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static volatile char canary[1024] = "@MARK@";
static char facts[64][128];
static int count;
extern char **environ;

static void fact(const char *form, ...)
{
	va_list words;
	va_start(words, form);
	vsnprintf(facts[count++], sizeof facts[0], form, words);
	va_end(words);
}

static const char *outcome(long result)
{
	return result < 0 ? strerrorname_np(errno) : "ok";
}

static void look(void)
{
	struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct sets[2];
	struct rlimit files;
	char path[2048];
	int bounding = 0, open_files = 0, variables = 0;
	for (int n = 0; n < 64; n++)
		bounding += prctl(PR_CAPBSET_READ, n) == 1;
	for (int n = 3; n < 1024; n++)
		open_files += fcntl(n, F_GETFD) >= 0;
	while (environ[variables])
		variables++;
	syscall(SYS_capget, &head, sets);
	getrlimit(RLIMIT_NOFILE, &files);
	fact("uid=%d:%d", getuid(), getgid());
	fact("capabilities=%x:%x:%x", sets[0].effective | sets[1].effective, sets[0].permitted | sets[1].permitted,
	     sets[0].inheritable | sets[1].inheritable);
	fact("bounding=%d", bounding);
	fact("no_new_privs=%d", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
	fact("seccomp=%d", prctl(PR_GET_SECCOMP));
	fact("pid=%d", getpid());
	fact("variables=%d", variables);
	fact("descriptors=%d", open_files);
	fact("files=%lu", (unsigned long)files.rlim_cur);
	fact("canary=%s", outcome(open((const char *)canary, O_RDONLY)));
	snprintf(path, sizeof path, "/proc/1/root%s", (const char *)canary);
	fact("canary-by-proc=%s", outcome(open(path, O_RDONLY)));
	fact("proc=%s", outcome(open("/proc/self/exe", O_RDONLY)));
	fact("sys=%s", outcome(open("/sys/kernel", O_RDONLY)));
	fact("null=%s", outcome(open("/dev/null", O_RDONLY)));
	fact("volume=%s", outcome(open("/run/volume/file", O_RDONLY)));
}

static void try(void)
{
	char *none[] = {NULL};
	fact("node=%s", outcome(open("/image-node", O_RDONLY)));
	fact("write=%s", outcome(open("/etc/written", O_WRONLY | O_CREAT, 0600)));
	fact("mount=%s", outcome(mount("none", "/etc", "tmpfs", 0, NULL)));
	fact("umount=%s", outcome(umount2("/proc", MNT_DETACH)));
	fact("remount=%s", outcome(mount("none", "/", NULL, MS_REMOUNT | MS_BIND, NULL)));
	fact("unshare=%s", outcome(unshare(CLONE_NEWUSER)));
	fact("socket=%s", outcome(socket(AF_INET, SOCK_STREAM, 0)));
	fact("fork=%s", outcome(fork()));
	fact("exec=%s", outcome(execve("/bin/busybox", none, none)));
	fact("mknod=%s", outcome(mknod("/dev/x", S_IFCHR | 0666, makedev(1, 5))));
	fact("chroot=%s", outcome(chroot("/etc")));
	fact("setuid=%s", outcome(setuid(12345)));
	fact("io_uring=%s", outcome(syscall(425, 1, NULL)));
}

static void put(FILE *file, uint32_t number)
{
	fwrite(&number, sizeof number, 1, file);
}

int main(int argc, char **argv)
{
	look();
	try();
	FILE *file = fopen(argv[argc - 1], "we");
	if (!file)
		return 3;
	uint32_t size = 0, place = 48 + 24 * (uint32_t)count;
	for (int n = 0; n < count; n++)
		size += (uint32_t)strlen(facts[n]) + 7;
	fwrite("glibc-ld.so.cache1.1", 20, 1, file);
	put(file, (uint32_t)count);
	put(file, size);
	for (int n = 0; n < 5; n++)
		put(file, n == 0 ? 2 : 0);
	for (int n = 0; n < count; n++) {
		put(file, sizeof(void *) == 8 ? 0x0303 : 3);
		put(file, place + 6);
		put(file, place);
		put(file, 0);
		put(file, 0);
		put(file, 0);
		place += (uint32_t)strlen(facts[n]) + 7;
	}
	for (int n = 0; n < count; n++)
		fprintf(file, "/fact/%s%c", facts[n], 0);
	return fclose(file) ? 4 : 0;
}
