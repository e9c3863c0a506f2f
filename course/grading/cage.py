"""Runs inside the sandbox: forks one locked-in process for each submission.

bubblewrap has already taken away the network, the file system and every other process. This
process imports torch once and then only forks. Each fork enters namespaces of its own (processes,
mounts, IPC) with an empty /tmp, gives up every capability, forbids itself by seccomp to start
processes or programs, limits its memory, and only then meets a student's code. It dies with the
submission, and nothing that it wrote is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import sys
from pathlib import Path

import torch

from course.grading import fixtures, worker
from course.grading.protocol import pack, unpack

MEMORY = 3 * 2**30  # bytes of address space
SCRATCH = 64 * 2**20  # bytes in /tmp
CPU_SECONDS = 300
FILE_SIZE = 16 * 2**20  # bytes
OPEN_FILES = 64

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID = 0x00020000, 0x08000000, 0x10000000, 0x20000000
CLONE_THREAD = 0x00010000
MS_NOSUID_NODEV_NOEXEC = 2 | 4 | 8
MS_REC_PRIVATE = 0x4000 | 0x40000
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
LINUX_CAPABILITY_VERSION_3 = 0x20080522

# Errno given for a forbidden system call.
EPERM, ENOSYS = 1, 38

FORBIDDEN = """
    fork vfork execve execveat unshare setns mount umount2 pivot_root chroot move_mount open_tree fsopen fsmount
    fsconfig fspick mount_setattr ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp bpf perf_event_open
    userfaultfd keyctl add_key request_key io_uring_setup io_uring_enter io_uring_register memfd_create
    memfd_secret kexec_load kexec_file_load init_module finit_module delete_module socket shmget msgget semget
    mq_open name_to_handle_at open_by_handle_at
""".split()

libc = ctypes.CDLL(None, use_errno=True)


def main(control: int, isolated: bool) -> None:
    """Fork a process for each connection that arrives on the control socket.

    Args:
        control: file descriptor of a Unix socket to the grader.
        isolated: False runs without any lock, for one's own code where no sandbox is to be had.
    """
    torch.set_num_threads(1)
    _load_lazy_modules()
    if isolated:
        import pyseccomp  # noqa: F401  (see _forbid_system_calls)
    with socket.socket(fileno=control) as channel:
        nested = isolated and _can_nest()
        channel.sendall(b"N" if nested else b"R")  # N: reusable; R: one submission, then thrown away
        while True:
            order, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
            if not order:
                return
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # until the keeper can act on it
            keeper = os.fork()
            if keeper == 0:
                channel.close()
                _keep(descriptors[0], nested, isolated)
            os.close(descriptors[0])
            channel.recv(1)  # the grader is done with this submission
            with contextlib.suppress(ProcessLookupError):
                os.kill(keeper, signal.SIGTERM)
            os.waitpid(keeper, 0)
            channel.sendall(b"D")


def _load_lazy_modules() -> None:
    """Once here, not again in each submission: what torch imports only at first use (900 modules)."""
    fixtures.largest_tensor(torch.exp, torch.ones(3))
    unpack(pack({}, [torch.ones(3)])[8:])


def _can_nest() -> bool:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _enter_namespaces()
            if os.fork() == 0:
                _private_mounts()
                os._exit(0)
            code = os.waitstatus_to_exitcode(os.wait()[1])
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _keep(connection: int, nested: bool, isolated: bool) -> None:
    """In the first fork: hold the submission's process and kill it when told to."""
    try:
        if nested:
            _enter_namespaces()
        inmate = os.fork()
        if inmate == 0:
            _serve(connection, nested, isolated)
        os.close(connection)
        signal.signal(signal.SIGTERM, lambda *_: os.kill(inmate, signal.SIGKILL))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        os.waitpid(inmate, 0)
    finally:
        os._exit(0)


def _serve(connection: int, nested: bool, isolated: bool) -> None:
    """In the second fork: lock up, then answer the grader."""
    try:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()  # out of its keeper's process group: kill(0) reaches nobody else
        if nested:
            _private_mounts()
        folder = Path("/tmp/submission") if isolated else Path(os.environ["COURSE_UNSAFE_FOLDER"])
        folder.mkdir(exist_ok=True)
        os.chdir(folder)
        for descriptor in (0, 1, 2):
            os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
        if isolated:
            _limit()
            _drop_capabilities()
            _forbid_system_calls()
        worker.serve(socket.socket(fileno=connection), folder)
    finally:
        os._exit(0)


def _enter_namespaces() -> None:
    user, group = os.getuid(), os.getgid()
    _check(libc.unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC))
    Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")


def _private_mounts() -> None:
    _check(libc.mount(b"none", b"/", None, MS_REC_PRIVATE, None))
    size = f"size={SCRATCH},nr_inodes=4096,mode=0700".encode()
    _check(libc.mount(b"tmpfs", b"/tmp", b"tmpfs", MS_NOSUID_NODEV_NOEXEC, size))
    # The outer /proc would show the process that forks.
    _check(libc.mount(b"tmpfs", b"/proc", b"tmpfs", MS_NOSUID_NODEV_NOEXEC | 1, b"size=4096"))


def _limit() -> None:
    limits = {
        resource.RLIMIT_AS: MEMORY,
        resource.RLIMIT_CPU: CPU_SECONDS,
        resource.RLIMIT_FSIZE: FILE_SIZE,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_CORE: 0,
    }
    for which, value in limits.items():
        resource.setrlimit(which, (value, value))


def _drop_capabilities() -> None:
    _check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    header = (ctypes.c_uint32 * 2)(LINUX_CAPABILITY_VERSION_3, 0)
    _check(libc.capset(header, (ctypes.c_uint32 * 6)()))


def _forbid_system_calls() -> None:
    import pyseccomp as seccomp  # in memory since main(): finding its library takes a process

    rules = seccomp.SyscallFilter(seccomp.ALLOW)
    for name in FORBIDDEN:
        with contextlib.suppress(ValueError, RuntimeError):  # a call that this kernel or machine does not know
            rules.add_rule(seccomp.ERRNO(EPERM), name)
    # Threads are allowed, processes are not. The flags of clone3 cannot be seen: libc falls back to clone.
    rules.add_rule(seccomp.ERRNO(ENOSYS), "clone3")
    rules.add_rule(seccomp.ERRNO(EPERM), "clone", seccomp.Arg(0, seccomp.MASKED_EQ, CLONE_THREAD, 0))
    rules.load()


def _check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    main(int(sys.argv[1]), isolated=sys.argv[2] == "isolated")
