"""Runs a command on a pseudo-terminal of 100 columns and plays a person: steps on stdin, one a line.

  send TEXT   types TEXT (\\r is Enter, \\x03 Ctrl-C, \\x04 Ctrl-D), at once
  wait TEXT   waits until TEXT has come since the last wait
  signal N    sends the signal N to the command
  stopped     waits until the command has stopped, checks the modes of the terminal, and continues it until it has
              its own modes again

usage: term.py SECONDS COMMAND ...; prints all that came; exits with the command's status (128 + N: signal N), 124 when it
runs out of time, or 125 when the command left the terminal in other modes than it found.
"""
import fcntl, os, pty, select, signal, struct, sys, termios, time

deadline = time.monotonic() + float(sys.argv[1])
steps = [(line.rstrip("\n").split(" ", 1) + [""])[:2] for line in sys.stdin if line.strip()]
ready, go = os.pipe()
pid, fd = pty.fork()
if pid == 0:
    os.read(ready, 1)
    os.execvp(sys.argv[2], sys.argv[2:])
fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
modes = termios.tcgetattr(fd)  # the master tells those of the other side
os.write(go, b"x")
seen, since, trouble = b"", 0, 0


def bad(status, what):
    global trouble
    trouble = trouble or status
    sys.stderr.write("term.py: %s; left: %s\n" % (what, steps))


def check_modes(when):
    if termios.tcgetattr(fd) != modes:
        bad(125, "other modes of the terminal %s: %s, before: %s" % (when, termios.tcgetattr(fd), modes))


def try_step(kind, text):
    """Whether it is done."""
    global since
    text = text.encode().decode("unicode_escape").encode("latin-1")
    if kind == "send":
        os.write(fd, text)
    elif kind == "signal":
        os.kill(pid, int(text))
    elif kind == "wait":
        at = seen.find(text, since)
        since = at + len(text) if at >= 0 else since
        return at >= 0
    elif kind == "stopped":
        found, status = os.waitpid(pid, os.WUNTRACED | os.WNOHANG)
        if not found:
            return False
        if not os.WIFSTOPPED(status):
            raise SystemExit("term.py: it ended and did not stop")
        check_modes("while it is stopped")
        os.kill(pid, signal.SIGCONT)
        while termios.tcgetattr(fd) == modes and time.monotonic() < deadline:
            time.sleep(0.001)  # a person types when it is back
    else:
        raise SystemExit("term.py: no step is called " + kind)
    return True


while time.monotonic() < deadline:
    while steps and try_step(*steps[0]):
        steps.pop(0)
    if select.select([fd], [], [], 0.01)[0]:
        try:
            data = os.read(fd, 65536)
        except OSError:
            break
        if not data:
            break
        seen += data
else:
    os.kill(pid, 9)
    bad(124, "out of time")
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
if trouble != 124:
    check_modes("at the end")
sys.stdout.buffer.write(seen)
sys.exit(trouble or (status if status >= 0 else 128 - status))
