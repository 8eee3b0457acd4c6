"""Runs a command on a pseudo-terminal of 100 columns and plays a person: steps on stdin, one a line.

  send TEXT   types TEXT (\\r is Enter, \\x03 Ctrl-C, \\x04 Ctrl-D)
  wait TEXT   waits until TEXT has come since the last wait
  sleep S

usage: term.py SECONDS COMMAND ...; prints all that came; exits with the command's status (124: out of time).
"""
import fcntl, os, pty, select, struct, sys, termios, time

# Between a prompt and the line editor's raw mode the terminal itself would take Ctrl-C and Ctrl-D: a person is slower.
PROMPT_SECONDS = 0.5
deadline = time.monotonic() + float(sys.argv[1])
steps = [line.rstrip("\n").split(" ", 1) for line in sys.stdin if line.strip()]
pid, fd = pty.fork()
if pid == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
seen, since, wake, late = b"", 0, 0.0, False
while True:
    now = time.monotonic()
    if now > deadline:
        os.kill(pid, 9)
        late = True
        break
    if steps and now >= wake:
        kind, text = steps[0]
        text = text.encode().decode("unicode_escape").encode("latin-1")
        if kind == "send":
            os.write(fd, text)
            steps.pop(0)
        elif kind == "sleep":
            wake = now + float(text)
            steps.pop(0)
        elif kind == "wait":
            at = seen.find(text, since)
            if at >= 0:
                since = at + len(text)
                steps.pop(0)
                if text.strip() == b">":
                    wake = time.monotonic() + PROMPT_SECONDS
                continue
    if select.select([fd], [], [], 0.02)[0]:
        try:
            data = os.read(fd, 65536)
        except OSError:
            break
        if not data:
            break
        seen += data
status = os.waitpid(pid, 0)[1]
sys.stdout.buffer.write(seen)
sys.exit(124 if late else os.waitstatus_to_exitcode(status) % 256)
