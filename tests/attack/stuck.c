// A FUSE file system that stops answering: stuck FOLDER ARMED
// Every name in FOLDER is a regular file of zeros. Once the file ARMED exists, reading is never answered.
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static int server;
static char room[1 << 18];

static void answer(unsigned long long unique, int error, const void *data, size_t size) {
    static char out[8192];
    struct fuse_out_header head = {.len = sizeof head + size, .error = -error, .unique = unique};
    memcpy(out, &head, sizeof head);
    if (size)
        memcpy(out + sizeof head, data, size);
    if (write(server, out, head.len) < 0)
        perror("write");
}

static struct fuse_attr attributes(unsigned long long inode) {
    struct fuse_attr of = {.ino = inode, .mode = inode == 1 ? S_IFDIR | 0755 : S_IFREG | 0644, .nlink = 1};
    of.size = 4096;
    return of;
}

static void serve(struct fuse_in_header *in, const char *armed) {
    static char zeros[4096];
    switch (in->opcode) {
    case FUSE_INIT: {
        struct fuse_init_in *offer = (void *)(in + 1);
        struct fuse_init_out out = {.major = 7, .minor = offer->minor < 31 ? offer->minor : 31, .max_write = 4096};
        return answer(in->unique, 0, &out, sizeof out);
    }
    case FUSE_GETATTR: {
        struct fuse_attr_out out = {.attr = attributes(in->nodeid)};
        return answer(in->unique, 0, &out, sizeof out);
    }
    case FUSE_LOOKUP: {
        struct fuse_entry_out out = {.nodeid = 2, .attr = attributes(2)};
        return answer(in->unique, 0, &out, sizeof out);
    }
    case FUSE_OPEN:
    case FUSE_OPENDIR: {
        struct fuse_open_out out = {.fh = 1, .open_flags = FOPEN_DIRECT_IO};
        return answer(in->unique, 0, &out, sizeof out);
    }
    case FUSE_STATFS: {
        struct fuse_statfs_out out = {0};
        return answer(in->unique, 0, &out, sizeof out);
    }
    case FUSE_READ:
        if (access(armed, F_OK))
            answer(in->unique, 0, zeros, sizeof zeros);
        return;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        return;
    case FUSE_RELEASE:
    case FUSE_FLUSH:
        return answer(in->unique, 0, 0, 0);
    default:
        answer(in->unique, ENOSYS, 0, 0);
    }
}

int main(int count, char **words) {
    char options[128];
    server = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", server);
    if (count != 3 || server < 0 || mount("stuck", words[1], "fuse.stuck", 0, options)) {
        perror("stuck");
        return 1;
    }
    puts("ready");
    fflush(stdout);
    for (;;) {
        if (read(server, room, sizeof room) > 0)
            serve((struct fuse_in_header *)room, words[2]);
        else if (errno == ENODEV)
            return 0;
    }
}
