/* Messages and the progress bar, on a pipe and on a terminal. */
#include "../testing.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"

static char seen[8192];
static double now_ms;
static int columns; /* of the terminal; 0: it does not say */

/* In place of the library's: time passes when a test says so, whatever the machine does meanwhile. */
double clock_ms(void)
{
    return now_ms;
}

/* Runs fn with stderr going into write_fd and collects from read_fd what it printed. */
static void capture(void (*fn)(void), int read_fd, int write_fd)
{
    int saved = dup(STDERR_FILENO);
    size_t n = 0;
    dup2(write_fd, STDERR_FILENO);
    fn();
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    struct pollfd p = {read_fd, POLLIN, 0};
    while (n < sizeof seen - 1 && poll(&p, 1, 50) > 0) {
        ssize_t got = read(read_fd, seen + n, sizeof seen - 1 - n);
        if (got <= 0) break;
        n += (size_t)got;
    }
    seen[n] = 0;
    close(read_fd);
    close(write_fd);
}

static void on_pipe(void (*fn)(void))
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    capture(fn, fds[0], fds[1]);
}

static bool on_terminal(void (*fn)(void))
{
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) return false;
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    if (slave < 0) return false;
    ioctl(master, TIOCSWINSZ, &(struct winsize){.ws_row = 24, .ws_col = (unsigned short)columns});
    capture(fn, master, slave);
    return true;
}

static void say_both(void)
{
    log_note("a note of %d words", 5);
    log_warn("a %s", "warning");
}

static void say_quietly(void)
{
    log_quiet(true);
    say_both();
    log_quiet(false);
}

static void messages_have_the_program_in_front(void **state)
{
    (void)state;
    on_pipe(say_both);
    assert_string_equal(seen, "lily: a note of 5 words\nlily: warning: a warning\n");
}

static void quiet_keeps_warnings(void **state)
{
    (void)state;
    on_pipe(say_quietly);
    assert_string_equal(seen, "lily: warning: a warning\n");
    on_pipe(say_both);
    assert_non_null(strstr(seen, "note"));
}

static void say_long(void)
{
    static char text[5000];
    memset(text, 'x', sizeof text - 1);
    log_note("%s", text);
}

static void a_long_message_is_cut_at_a_line(void **state)
{
    (void)state;
    on_pipe(say_long);
    size_t n = strlen(seen);
    assert_true(n > 1000 && n < 1100);
    assert_int_equal(seen[n - 1], '\n');
}

static void slow_work(void)
{
    struct progress p;
    progress_begin(&p, "loading", 4 * GIB, "B");
    progress_at(&p, GIB);
    now_ms += 300;
    progress_at(&p, 2 * GIB);
    now_ms += 99;
    progress_at(&p, 2.1 * GIB); /* too soon after the last drawing */
    log_note("between");
    progress_end(&p);
}

static void fast_work(void)
{
    struct progress p;
    progress_begin(&p, "loading", 10, "layer");
    for (int i = 0; i <= 10; i++, now_ms += 24) progress_at(&p, i);
    progress_end(&p);
}

static void long_work(void)
{
    struct progress p;
    progress_begin(&p, "long", 10, "layer");
    for (int i = 0; i <= 10; i++, now_ms += 50) progress_at(&p, i);
    progress_end(&p);
}

static void odd_work(void)
{
    struct progress p;
    progress_begin(&p, "odd", 0, "step");
    now_ms += 300;
    progress_at(&p, 5); /* more than all there is */
    progress_end(&p);
    progress_end(&p);
}

static void timed_work(void)
{
    struct progress p;
    progress_begin(&p, "waiting", 30, "s");
    now_ms += 300;
    progress_at(&p, 3);
    progress_end(&p);
}

static void quiet_work(void)
{
    log_quiet(true);
    slow_work();
    log_quiet(false);
}

static void no_bar_off_the_terminal(void **state)
{
    (void)state;
    on_pipe(slow_work);
    assert_string_equal(seen, "lily: between\n");
}

static void a_bar_on_the_terminal_is_drawn_and_wiped(void **state)
{
    (void)state;
    columns = 100;
    if (!on_terminal(slow_work)) TEST_SKIP("no pseudo terminal here");
    columns = 0;
    char *bar = strstr(seen, "\rloading [==============              ]  50% 2.0 of 4.0 GiB, ");
    assert_non_null(bar);
    assert_null(strstr(bar + 1, "\rloading")); /* one drawing only */
    char *note = strstr(bar, "\r\033[Klily: between"); /* the bar makes room for the line */
    assert_non_null(note);
    assert_non_null(strstr(note + 3, "\r\033[K")); /* wiped at the end */
}

static void a_bar_is_drawn_again_as_work_goes_on(void **state)
{
    (void)state;
    if (!on_terminal(long_work)) TEST_SKIP("no pseudo terminal here");
    int drawn = 0;
    for (const char *at = seen; (at = strstr(at, "\rlong")); at++) drawn++;
    assert_int_equal(drawn, 3); /* after 250, 350 and 450 ms */
    assert_non_null(strstr(seen, "90% 9 of 10 layers, 20 layers/s"));
}

static void fast_work_and_quiet_draw_nothing(void **state)
{
    (void)state;
    if (!on_terminal(fast_work)) TEST_SKIP("no pseudo terminal here");
    assert_string_equal(seen, "");
    assert_true(on_terminal(quiet_work));
    assert_string_equal(seen, "");
}

static void more_than_everything_is_all(void **state)
{
    (void)state;
    if (!on_terminal(odd_work)) TEST_SKIP("no pseudo terminal here");
    assert_non_null(strstr(seen, "[============================] 100% 5 of 1 step, "));
}

static void wordy_work(void)
{
    struct progress p;
    progress_begin(&p, "reading", 131072, "token");
    now_ms += 2000;
    progress_at(&p, 65536);
    progress_end(&p);
}

static void a_bar_fits_the_terminal(void **state)
{
    static const struct {
        int columns;
        const char *line;
    } cases[] = {
        {0, "reading [========        ]  50% 65536 of 131072 tokens, 32768 tok/s, 2 s left"},
        {100, "reading [==============              ]  50% 65536 of 131072 tokens, 32768 tok/s, 2 s left"},
        {80, "reading [========        ]  50% 65536 of 131072 tokens, 32768 tok/s, 2 s left"},
        {72, "reading [==============              ]  50% 2 s left"},
        {40, "reading [======       ]  50% 2 s left"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        columns = cases[i].columns;
        if (!on_terminal(wordy_work)) TEST_SKIP("no pseudo terminal here");
        columns = 0;
        char *line = strstr(seen, "\rreading"), *end = line ? strstr(line, "\033[K") : NULL;
        assert_non_null(end);
        *end = 0;
        assert_string_equal(line + 1, cases[i].line);
        assert_true(!cases[i].columns || strlen(line + 1) < (size_t)cases[i].columns);
    }
}

static void seconds_have_no_rate(void **state)
{
    (void)state;
    if (!on_terminal(timed_work)) TEST_SKIP("no pseudo terminal here");
    assert_non_null(strstr(seen, "]  10% 3 of 30 s, "));
    assert_null(strstr(seen, "s/s"));
}

/* As much as the pipe holds; its length. */
static size_t fill(int fd)
{
    char dots[4096];
    size_t n = 0;
    memset(dots, '.', sizeof dots);
    int flags = fcntl(fd, F_GETFL);
    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    for (ssize_t got; (got = write(fd, dots, sizeof dots)) > 0;) n += (size_t)got;
    fcntl(fd, F_SETFL, flags);
    return n;
}

static void take(int fd, char *to, size_t n)
{
    for (ssize_t got; n; to += got, n -= (size_t)got) assert_true((got = read(fd, to, n)) > 0);
}

/* The last test: from here on the program does not wait. */
static void nobody_waits_for_a_reader(void **state)
{
    static char got[4 << 20], text[1001];
    int fds[2], saved = dup(STDERR_FILENO);
    (void)state;
    assert_int_equal(pipe(fds), 0);
    size_t filled = fill(fds[1]);
    dup2(fds[1], STDERR_FILENO);
    log_never_wait();
    memset(text, 'x', 1000);
    alarm(60); /* instead of waiting for ever */
    log_note("first\033[31m");
    for (int i = 0; i < 2000; i++) log_note("%s", text); /* twice what is kept */
    log_flush(10);
    take(fds[0], got, filled);
    log_flush(0);
    size_t n = 0; /* the pipe holds less than what was kept: the rest, and the count, come as it is read */
    struct pollfd p = {fds[0], POLLIN, 0};
    while (poll(&p, 1, 0) == 1) {
        ssize_t more = read(fds[0], got + n, sizeof got - 1 - n);
        assert_true(more > 0);
        n += (size_t)more;
        log_flush(0);
    }
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(fds[0]);
    close(fds[1]);
    assert_memory_equal(got, "lily: first^[[31m\nlily: xxx", 27);
    const char *end = strstr(got, "lily: warning: nobody read stderr: lines were dropped, ");
    assert_non_null(end);
    long dropped = strtol(strpbrk(end, "0123456789"), NULL, 10), kept = (long)(end - got) / 1007;
    assert_true(n > 900000 && n < (1 << 20) + 1000);
    assert_int_equal(kept + dropped, 2000);
    alarm(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_have_the_program_in_front),
        cmocka_unit_test(quiet_keeps_warnings),
        cmocka_unit_test(a_long_message_is_cut_at_a_line),
        cmocka_unit_test(no_bar_off_the_terminal),
        cmocka_unit_test(a_bar_on_the_terminal_is_drawn_and_wiped),
        cmocka_unit_test(a_bar_is_drawn_again_as_work_goes_on),
        cmocka_unit_test(fast_work_and_quiet_draw_nothing),
        cmocka_unit_test(more_than_everything_is_all),
        cmocka_unit_test(a_bar_fits_the_terminal),
        cmocka_unit_test(seconds_have_no_rate),
        cmocka_unit_test(nobody_waits_for_a_reader),
    };
    return RUN_TESTS(tests);
}
