/* Runs a hook and does something to it at one of its steps: at REPORT WHO STEP ACTION HOOK [ARGUMENT...].
 *
 * A step is a system call by which a process changes something or ends something; it is counted where the call begins.
 * WHO is "hook" for the process that is started, "child" for all of its children together. When WHO comes to its STEP
 * (from 1 on), ACTION is done before the kernel does the call: "kill" kills WHO, "orphan" kills the hook, a number
 * lets the call fail with this errno, "stuck" keeps WHO in the call,
 * even when it is killed, until the hook has ended, as a broken driver does; a path is run as a program.
 *
 * REPORT gets a line for each step ("hook openat"), "late NAME" for a step of a child whose hook has been killed,
 * "left N" where N processes were still there after the limit, and "end STATUS" (negative for a signal) of the hook. */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT 15
#define MOST 64
#define CALL(name) { SYS_##name, #name }

static const struct {
	unsigned long number;
	const char *name;
} steps[] = {
	CALL(openat), CALL(write), CALL(mkdirat), CALL(mknodat), CALL(symlinkat), CALL(linkat), CALL(unlinkat),
	CALL(renameat2), CALL(fchownat), CALL(fchown), CALL(fchmod), CALL(fchmodat), CALL(ftruncate), CALL(clone),
	CALL(clone3), CALL(setns), CALL(unshare), CALL(setfsuid), CALL(setfsgid), CALL(prctl), CALL(bpf),
	CALL(open_tree), CALL(mount_setattr), CALL(move_mount), CALL(fsopen), CALL(fsconfig), CALL(fsmount),
	CALL(umount2), CALL(mount), CALL(chroot), CALL(pidfd_open), CALL(kill), CALL(wait4), CALL(exit_group),
#ifdef SYS_open
	CALL(open), CALL(mkdir), CALL(mknod), CALL(symlink), CALL(link), CALL(unlink), CALL(rmdir), CALL(rename),
	CALL(chown), CALL(lchown), CALL(chmod), CALL(fork), CALL(vfork),
#endif
#ifdef SYS_renameat
	CALL(renameat),
#endif
};
#define COUNT (sizeof steps / sizeof *steps)
#define OPTIONS (PTRACE_O_TRACESECCOMP | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | \
		 PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL)
static pid_t known[MOST], hook, stuck;
static int alive, over, hook_status;
static FILE *report;

static void expire(int number)
{
	(void)number;
	over = 1;
}

static int is_known(pid_t pid)
{
	for (int i = 0; i < alive; i++)
		if (known[i] == pid)
			return 1;
	return 0;
}

static void forget(pid_t pid, int status)
{
	if (pid == hook && stuck)
		ptrace(PTRACE_CONT, stuck, 0, 0);
	if (pid == hook)
		hook_status = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
	for (int i = 0; i < alive; i++)
		if (known[i] == pid)
			known[i] = known[--alive];
}

static const char *name_of(unsigned long number)
{
	for (size_t i = 0; i < COUNT; i++)
		if (steps[i].number == number)
			return steps[i].name;
	return "?";
}

/* The kernel stops this process and its children at steps only. An openat is one where it makes or cuts a file. */
static void stop_at_steps(void)
{
	static struct sock_filter code[2 * COUNT + 7];
	struct sock_fprog program = { 0, code };
	struct sock_filter begin[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 4),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_CREAT | O_TRUNC, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	for (size_t i = 0; i < sizeof begin / sizeof *begin; i++)
		code[program.len++] = begin[i];
	for (size_t i = 1; i < COUNT; i++) {
		code[program.len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, steps[i].number, 0, 1);
		code[program.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
	}
	code[program.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		_exit(126);
}

/* The call is not made, and says that it failed. */
static void fail(pid_t pid, int error)
{
#if defined __x86_64__
	struct user_regs_struct registers;
	ptrace(PTRACE_GETREGS, pid, 0, &registers);
	registers.orig_rax = -1;
	registers.rax = -error;
	ptrace(PTRACE_SETREGS, pid, 0, &registers);
#elif defined __aarch64__
	struct user_regs_struct registers;
	int number = -1;
	struct iovec all = { &registers, sizeof registers }, call = { &number, sizeof number };
	ptrace(PTRACE_GETREGSET, pid, NT_PRSTATUS, &all);
	registers.regs[0] = -error;
	ptrace(PTRACE_SETREGSET, pid, NT_PRSTATUS, &all);
	ptrace(PTRACE_SETREGSET, pid, NT_ARM_SYSTEM_CALL, &call);
#endif
}

static void act(const char *action, pid_t pid)
{
	int status;
	if (!strcmp(action, "kill")) {
		kill(pid, SIGKILL);
	} else if (!strcmp(action, "orphan")) {
		kill(hook, SIGKILL);
		while (waitpid(hook, &status, __WALL) == hook && WIFSTOPPED(status))
			;
		forget(hook, status);
	} else if (!strcmp(action, "stuck")) {
		ptrace(PTRACE_SETOPTIONS, pid, 0, OPTIONS | PTRACE_O_TRACEEXIT);
		stuck = pid;
	} else if (atoi(action)) {
		fail(pid, atoi(action));
	} else if (strcmp(action, "none")) {
		pid_t program = fork();
		if (!program) {
			dup2(dup2(open("/dev/null", O_RDWR), 1), 2);
			execl(action, action, (char *)NULL);
			_exit(127);
		}
		waitpid(program, &status, 0);
		if (status)
			fprintf(report, "action %d\n", WEXITSTATUS(status));
	}
}

static pid_t start(char **argv)
{
	pid_t pid = fork();
	if (!pid) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		stop_at_steps();
		execv(argv[0], argv);
		_exit(127);
	}
	waitpid(pid, NULL, 0);
	ptrace(PTRACE_SETOPTIONS, pid, 0, OPTIONS);
	known[alive++] = pid;
	ptrace(PTRACE_CONT, pid, 0, 0);
	return pid;
}

static void step(pid_t pid, char **argv)
{
	static long count;
	struct __ptrace_syscall_info info = { 0 };
	const char *who = pid == hook ? "hook" : "child";
	ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info);
	fprintf(report, "%s %s\n", is_known(hook) ? who : "late", name_of(info.seccomp.nr));
	if (!strcmp(who, argv[2]) && ++count == atol(argv[3]))
		act(argv[4], pid);
}

int main(int argc, char **argv)
{
	int status, left;
	struct sigaction action = { .sa_handler = expire };
	if (argc < 6 || !(report = fopen(argv[1], "w")))
		return 2;
	fcntl(fileno(report), F_SETFD, FD_CLOEXEC);
	hook = start(argv + 5);
	sigaction(SIGALRM, &action, NULL);
	alarm(LIMIT);
	while (alive && !over) {
		long give = 0;
		pid_t pid = waitpid(-1, &status, __WALL);
		if (pid < 0)
			break;
		if (!WIFSTOPPED(status)) {
			forget(pid, status);
			continue;
		}
		if (!is_known(pid) && alive < MOST)
			known[alive++] = pid;
		else if (status >> 16 == PTRACE_EVENT_SECCOMP)
			step(pid, argv);
		else if (!(status >> 16) && WSTOPSIG(status) != SIGTRAP)
			give = WSTOPSIG(status);
		if (pid != stuck || !is_known(hook))
			ptrace(PTRACE_CONT, pid, 0, give);
	}
	left = alive;
	for (int i = 0; i < left; i++)
		kill(known[i], SIGKILL);
	if (left)
		fprintf(report, "left %d\n", left);
	fprintf(report, "end %d\n", hook_status);
	fclose(report);
	return hook_status < 0 ? 128 - hook_status : hook_status;
}
