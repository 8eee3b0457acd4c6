/* The modes of the terminal on stdin. */
#include "terminal.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/log.h"

static struct termios before;
static volatile sig_atomic_t remembered;

void terminal_restore(void)
{
    if (remembered) tcsetattr(STDIN_FILENO, TCSANOW, &before); /* any other way would throw away what is typed ahead, or wait */
}

/* The handler is reset on entry, so the second coming of the signal, right after this, is its usual end. */
static void on_end(int sig)
{
    progress_abandon();
    terminal_restore();
    raise(sig);
}

static void on_stop(int sig)
{
    int error = errno;
    struct termios now;
    (void)sig;
    bool known = tcgetattr(STDIN_FILENO, &now) == 0;
    terminal_restore();
    raise(SIGSTOP); /* here it stands until somebody continues it */
    if (known && remembered) tcsetattr(STDIN_FILENO, TCSANOW, &now);
    errno = error;
}

static void handle(int sig, void (*handler)(int), int flags)
{
    struct sigaction a;
    if (sigaction(sig, NULL, &a) != 0 || a.sa_handler != SIG_DFL) return; /* ignored, as under nohup: leave it so */
    memset(&a, 0, sizeof a);
    a.sa_handler = handler;
    a.sa_flags = flags;
    sigemptyset(&a.sa_mask);
    sigaction(sig, &a, NULL);
}

void terminal_remember(void)
{
    static const int ends[] = {SIGTERM, SIGHUP, SIGQUIT};
    if (remembered || tcgetattr(STDIN_FILENO, &before) != 0) return;
    remembered = 1;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) handle(ends[i], on_end, SA_RESETHAND);
    handle(SIGTSTP, on_stop, SA_RESTART);
}

int terminal_interrupt_key(void)
{
    return remembered && before.c_cc[VINTR] != _POSIX_VDISABLE ? before.c_cc[VINTR] : -1;
}
