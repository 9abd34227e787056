/* Runs inside a container and tells, as JSON lines, what can be seen from there.
 *
 *   probe QUESTION...
 *   devices            /dev/nvidia* and below, with the outcome of opening each
 *   rule:MAJOR:MINOR   makes this character device itself and tries to open it
 *   dlopen:NAME        loads a library and asks it for the CUDA version
 *   mounts env fds     /proc/self/mountinfo, the environment, open descriptors
 *   stat:PATH read:PATH list:PATH   one file or folder
 *   id                 pid, uid, gid, working directory
 *   sleep:SECONDS exit:STATUS
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#ifndef STATIC
#include <dlfcn.h>
#endif

extern char **environ;

static const char *name_of(int error)
{
	return error ? strerrorname_np(error) : "ok";
}

static void text(const char *key, const char *value, size_t size)
{
	printf(", \"%s\": \"", key);
	for (size_t n = 0; n < size; n++) {
		unsigned char c = (unsigned char)value[n];
		if (c < 0x20 || c > 0x7e || c == '"' || c == '\\')
			printf("\\u%04x", c);
		else
			putchar(c);
	}
	putchar('"');
}

static void word(const char *key, const char *value)
{
	text(key, value, strlen(value));
}

static void begin(const char *what)
{
	printf("{\"what\": \"%s\"", what);
}

static void end(void)
{
	puts("}");
	fflush(stdout);
}

static int try_open(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	int error = fd < 0 ? errno : 0;
	if (fd >= 0)
		close(fd);
	return error;
}

static const char *kind(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG: return "file";
	case S_IFDIR: return "folder";
	case S_IFLNK: return "link";
	case S_IFCHR: return "char";
	case S_IFBLK: return "block";
	case S_IFIFO: return "fifo";
	case S_IFSOCK: return "socket";
	default: return "unknown";
	}
}

static void describe(const char *path)
{
	struct stat status;
	char target[4096];
	word("path", path);
	if (lstat(path, &status)) {
		word("error", name_of(errno));
		return;
	}
	word("kind", kind(status.st_mode));
	printf(", \"mode\": %u, \"uid\": %u, \"gid\": %u, \"size\": %lld, \"links\": %lu", status.st_mode & 07777,
	       status.st_uid, status.st_gid, (long long)status.st_size, (unsigned long)status.st_nlink);
	if (S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode))
		printf(", \"major\": %u, \"minor\": %u", major(status.st_rdev), minor(status.st_rdev));
	if (S_ISLNK(status.st_mode)) {
		ssize_t size = readlink(path, target, sizeof target);
		text("target", target, size > 0 ? (size_t)size : 0);
		printf(", \"leads\": %s", stat(path, &status) ? "false" : "true");
	}
}

static void devices(const char *folder, const char *prefix)
{
	DIR *entries = opendir(folder);
	struct dirent *entry;
	char path[4096];
	struct stat status;
	while (entries && (entry = readdir(entries))) {
		if (entry->d_name[0] == '.' || strncmp(entry->d_name, prefix, strlen(prefix)))
			continue;
		snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
		if (!lstat(path, &status) && S_ISDIR(status.st_mode)) {
			devices(path, "");
			continue;
		}
		begin("device");
		describe(path);
		word("open", name_of(try_open(path, O_RDWR)));
		end();
	}
	if (entries)
		closedir(entries);
}

/* Answers with the errors of making the node and of opening it for reading and for writing. */
static void rule(const char *number)
{
	unsigned hi = 0, lo = 0;
	const char *path = "/dev/.probe-node";
	int error;
	sscanf(number, "%u:%u", &hi, &lo);
	unlink(path);
	error = mknod(path, S_IFCHR | 0600, makedev(hi, lo)) ? errno : 0;
	begin("rule");
	printf(", \"major\": %u, \"minor\": %u", hi, lo);
	word("mknod", name_of(error));
	if (!error) {
		int reading = try_open(path, O_RDONLY), writing = try_open(path, O_WRONLY);
		word("read", name_of(reading));
		word("write", name_of(writing));
		printf(", \"allowed\": %s", reading == EPERM || writing == EPERM ? "false" : "true");
	}
	end();
	unlink(path);
}

#ifndef STATIC
/* The real file behind a loaded object: the mapping that holds this address. */
static void mapped_file(const void *address)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[8192], path[4096];
	unsigned long from, to;
	while (maps && fgets(line, sizeof line, maps))
		if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %4095[^\n]", &from, &to, path) == 3 &&
		    (unsigned long)address >= from && (unsigned long)address < to)
			word("file", path);
	if (maps)
		fclose(maps);
}

static void load(const char *name)
{
	void *library = dlopen(name, RTLD_NOW);
	int (*ask)(int *);
	int version = 0;
	Dl_info info;
	struct link { unsigned long base; char *name; void *dynamic; } *map = library; /* struct link_map, link.h */
	begin("dlopen");
	word("name", name);
	if (!library) {
		word("error", dlerror());
		end();
		return;
	}
	word("found", map->name);
	mapped_file(map->dynamic);
	*(void **)&ask = dlsym(library, "cuDriverGetVersion");
	if (ask && dladdr((void *)ask, &info)) {
		printf(", \"status\": %d", ask(&version));
		printf(", \"cuda\": %d", version);
	}
	end();
}
#else
static void load(const char *name)
{
	begin("dlopen");
	word("name", name);
	word("error", "this probe is static");
	end();
}
#endif

static void lines_of(const char *what, const char *path)
{
	FILE *file = fopen(path, "re");
	char *line = NULL;
	size_t room = 0;
	ssize_t size;
	while (file && (size = getline(&line, &room, file)) > 0) {
		begin(what);
		text("line", line, (size_t)size - (line[size - 1] == '\n'));
		end();
	}
	free(line);
	if (file)
		fclose(file);
}

static void environment(void)
{
	for (char **entry = environ; *entry; entry++) {
		begin("env");
		word("entry", *entry);
		end();
	}
}

static void descriptors(void)
{
	char path[64], target[4096];
	for (int fd = 0; fd < 1024; fd++) {
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		ssize_t size = readlink(path, target, sizeof target);
		if (size < 0)
			continue;
		begin("fd");
		printf(", \"fd\": %d", fd);
		text("target", target, (size_t)size);
		end();
	}
}

static void content(const char *path)
{
	static char data[1 << 20];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	ssize_t size = fd < 0 ? -1 : read(fd, data, sizeof data);
	begin("read");
	word("path", path);
	if (size < 0)
		word("error", name_of(errno));
	else
		text("content", data, (size_t)size);
	end();
	if (fd >= 0)
		close(fd);
}

static void entries_of(const char *path)
{
	struct dirent **found;
	int count = scandir(path, &found, NULL, alphasort);
	begin("list");
	word("path", path);
	if (count < 0) {
		word("error", name_of(errno));
		end();
		return;
	}
	printf(", \"names\": [");
	for (int n = 0, written = 0; n < count; n++) {
		const char *name = found[n]->d_name;
		if (!strcmp(name, ".") || !strcmp(name, ".."))
			continue;
		printf("%s\"", written++ ? ", " : "");
		for (; *name; name++)
			printf((unsigned char)*name < 0x20 || *name == '"' || *name == '\\' || *name & 0x80 ? "\\u%04x" : "%c",
			       (unsigned char)*name);
		putchar('"');
	}
	printf("]");
	end();
}

static void identity(void)
{
	char folder[4096] = "";
	begin("id");
	printf(", \"pid\": %d, \"uid\": %u, \"gid\": %u", getpid(), getuid(), getgid());
	word("cwd", getcwd(folder, sizeof folder) ? folder : "");
	end();
}

static const char *after(const char *question, const char *label)
{
	size_t size = strlen(label);
	return strncmp(question, label, size) ? NULL : question + size;
}

static int answer(const char *question)
{
	const char *rest;
	if (!strcmp(question, "devices")) {
		devices("/dev", "nvidia");
	} else if ((rest = after(question, "rule:"))) {
		rule(rest);
	} else if ((rest = after(question, "dlopen:"))) {
		load(rest);
	} else if (!strcmp(question, "mounts")) {
		lines_of("mount", "/proc/self/mountinfo");
	} else if (!strcmp(question, "env")) {
		environment();
	} else if (!strcmp(question, "fds")) {
		descriptors();
	} else if ((rest = after(question, "stat:"))) {
		begin("stat");
		describe(rest);
		end();
	} else if ((rest = after(question, "read:"))) {
		content(rest);
	} else if ((rest = after(question, "list:"))) {
		entries_of(rest);
	} else if (!strcmp(question, "id")) {
		identity();
	} else if ((rest = after(question, "sleep:"))) {
		sleep((unsigned)atoi(rest));
	} else if ((rest = after(question, "exit:"))) {
		exit(atoi(rest));
	} else {
		fprintf(stderr, "probe: no such question: %s\n", question);
		return 2;
	}
	return 0;
}

int main(int argc, char **argv)
{
	int status = 0;
	for (int n = 1; n < argc && !status; n++)
		status = answer(argv[n]);
	return status;
}
