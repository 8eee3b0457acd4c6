/* Signals other than SIGINT, and the standard descriptors. */
#include "process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/thread.h"

#define SHRUNK "a model file became shorter, or unreadable, while it was read"
#define SHRUNK_HINT "do not change a checkpoint that is in use; a download must be complete"

static volatile sig_atomic_t as_json;
static atomic_flag told = ATOMIC_FLAG_INIT; /* that a file became shorter */

static void put(int fd, const char *text)
{
    if (write(fd, text, strlen(text)) < 0) return; /* nowhere left to say so */
}

/* A page of a mapping is gone (BUS_ADRERR); every other bus error is a defect and takes its usual end. */
static void on_bus_error(int sig, siginfo_t *info, void *context)
{
    (void)context;
    if (info->si_code != BUS_ADRERR) {
        signal(sig, SIG_DFL);
        raise(sig);
        return;
    }
    if (atomic_flag_test_and_set(&told)) /* several threads of the pool meet the missing page */
        for (;;) pause();                /* until the first one's _exit */
    put(STDERR_FILENO, "lily: " SHRUNK "\nhint: " SHRUNK_HINT "\n");
    if (as_json) put(STDOUT_FILENO, "{\"error\":{\"message\":\"" SHRUNK "\",\"hint\":\"" SHRUNK_HINT "\"}}\n");
    _exit(1);
}

/* The message is out: many small things have filled the memory. */
static void on_memory_gone(void)
{
    if (as_json) put(STDOUT_FILENO, "{\"error\":{\"message\":\"not enough memory\",\"hint\":null}}\n");
    _exit(1);
}

/* Opened the wrong way round, so that using one still fails as a closed one does. */
static void occupy_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
}

static void raise_stack(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_STACK, &r) != 0 || r.rlim_cur >= STACK_BYTES) return; /* no limit is above all numbers */
    r.rlim_cur = r.rlim_max < STACK_BYTES ? r.rlim_max : STACK_BYTES;
    setrlimit(RLIMIT_STACK, &r);
}

void process_init(void)
{
    struct sigaction a;
    occupy_descriptors();
    raise_stack();
    signal(SIGPIPE, SIG_IGN); /* so that what must be tidied up is */
    signal(SIGXFSZ, SIG_IGN);
    memset(&a, 0, sizeof a);
    a.sa_sigaction = on_bus_error;
    a.sa_flags = SA_SIGINFO;
    sigemptyset(&a.sa_mask);
    sigaction(SIGBUS, &a, NULL);
    mem_on_end(on_memory_gone);
}

void process_interrupted(void)
{
    if (as_json) put(STDOUT_FILENO, "{\"error\":{\"message\":\"interrupted\",\"hint\":null}}\n");
}

void process_json(bool json)
{
    as_json = json;
}
