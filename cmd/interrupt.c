/* SIGINT. */
#include "interrupt.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "base/log.h"
#include "process.h"
#include "terminal.h"

static atomic_bool flag;
static atomic_int current = INTERRUPT_ENDS;
static const char *goodbye = ""; /* what a terminal needs last; set before the handler is */

static void leave(void)
{
    terminal_restore();
    process_interrupted();
    if (write(STDOUT_FILENO, goodbye, strlen(goodbye)) < 0) _exit(130);
    _exit(130);
}

static void on_signal(int sig)
{
    (void)sig;
    progress_abandon(); /* at once: what is under way may take a moment to its next stop */
    if (atomic_load(&current) == INTERRUPT_ENDS) leave();
    if (atomic_exchange(&flag, true) && atomic_load(&current) == INTERRUPT_STOPS_ANSWER) leave();
}

void interrupt_init(void)
{
    struct sigaction a;
    if (isatty(STDOUT_FILENO)) goodbye = env_color() ? "\033[0m\n" : "\n";
    memset(&a, 0, sizeof a);
    a.sa_handler = on_signal;
    a.sa_flags = SA_RESTART; /* a write must not be cut short */
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
}

enum interrupt_mode interrupt_mode(enum interrupt_mode mode)
{
    enum interrupt_mode last = atomic_load(&current);
    if (mode == last) return last;
    atomic_store(&flag, false);
    atomic_store(&current, mode);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT); /* at a prompt it comes in only while interrupt_wait waits, so none is missed */
    sigprocmask(mode == INTERRUPT_IS_NOTED ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
    return last;
}

enum interrupt_mode interrupt_guard(void)
{
    enum interrupt_mode mode = atomic_load(&current);
    return mode == INTERRUPT_ONLY_STOPS ? mode : interrupt_mode(INTERRUPT_STOPS_ANSWER);
}

void interrupt_note(void)
{
    atomic_store(&flag, true);
}

const atomic_bool *interrupt_flag(void)
{
    return &flag;
}

bool interrupted(void)
{
    return atomic_load(&flag);
}

bool interrupt_wait(int fd)
{
    struct pollfd p = {fd, POLLIN, 0};
    sigset_t none;
    sigemptyset(&none);
    while (!interrupted())
        if (ppoll(&p, 1, NULL, &none) > 0) return true;
    return false;
}
