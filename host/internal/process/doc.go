// Package process starts plugin processes, captures what they print for as
// long as they live, stops them, and leaves nothing behind.
//
// # Who is whose child
//
// Without a guard the plugin is a direct child of the host, in a process group
// of its own. With a guard there is one process between them:
//
//	host ──control socket──► guard (own session, subreaper) ──► plugin (own group) ──► its children
//	  └──────────── fd 3, or stdin and stdout, and the output pipes ────────────┘
//
// The guard is the host's own binary, started again (see RunGuard). It holds
// one end of a socket whose other end only the host has. When the host ends,
// however it ends, that socket reads end of file and the guard kills the
// plugin's group and then every process that the kernel hands to it as an
// orphan, until none is left.
//
// # What is promised
//
//   - Linux with a guard: after the host dies by any signal, the plugin and all
//     its descendants are gone within a second, also those in sessions of
//     their own. A program written to fork faster than it can be killed is not
//     covered; that takes a cgroup or a pid namespace.
//   - Linux without a guard: the plugin itself is killed by the kernel
//     (Pdeathsig). Its children are killed when the host stops it or sees it
//     exit, not when the host is killed.
//   - macOS: the plugin's process group only. There is no subreaper and no
//     parent death signal, so a grandchild in a session of its own survives
//     the death of the host.
//   - Windows: Start returns an error. Socketpairs on descriptor 3 and process
//     groups do not exist there.
//
// # Detached processes
//
// What several hosts share belongs to none of them (StartDetached): it has no
// guard, no parent death signal and no mark in its environment, writes to a
// file instead of pipes, and lives on when the host that started it ends. That
// host, as long as it runs, reaps it and kills what is left of its group then;
// afterwards the system's first process reaps it, and nobody kills anything.
//
// # Whose process is it
//
// A pid is only a number, and it is reused. Signals go through an os.Process
// handle, or to a process group whose leader has exited or runs but has not
// been reaped, so that the number cannot belong to anybody else. Processes
// that slipped out of the group are recognised by an unguessable value in the
// environment they started with (InstanceVariable) and signalled through a
// pidfd that was opened before the look.
//
// # Choices made here
//
//   - Spec.Env is passed as it is, plus InstanceVariable.
//   - Spec.Args does not contain argv[0]; that is always Spec.Path, which must
//     be absolute. LookPath resolves a bare command name beforehand.
//   - SIGTERM is followed by SIGCONT, so that a stopped plugin can obey.
//   - When a plugin exits by itself, what is left of its group and of its tree
//     is killed at once: a backend whose main process is gone serves nobody.
//   - Output is read at a pace, 25,000 lines a second behind a burst of 8,000: a
//     process that floods waits in its writes, and not its neighbours for a core.
//     The pace ends with the process, or when Stop begins.
//   - Output that is in the pipes when a plugin exits is read before Exited is
//     closed; nothing is waited for after that.
package process
