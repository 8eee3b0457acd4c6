/* Heads and chunked bodies: what is taken, what is refused. The rest of HTTP is tested on sockets (tests/api/test_http.py). */
#include "unit/testing.h"

#include "serve/http_head.h"

static int parse(const char *text, struct http_head *h)
{
    const char *why = "";
    return http_head_parse(text, strlen(text), h, &why);
}

static void test_a_head(void **state)
{
    (void)state;
    struct http_head h;
    assert_int_equal(parse("POST /v1/%63hat/?a=b HTTP/1.1\r\nHost: x\r\nContent-Length: 12 \r\nX-Y:\t z\r\n\r\n", &h), 0);
    assert_string_equal(h.method, "POST");
    assert_string_equal(h.path, "/v1/chat");
    assert_string_equal(h.query, "a=b");
    assert_int_equal(h.length, 12);
    assert_true(h.keep_alive);
    assert_string_equal(http_header(&h, "x-y"), "z");
    assert_null(http_header(&h, "x"));
    http_head_free(&h);
}

static void test_connection(void **state)
{
    (void)state;
    struct http_head h;
    assert_int_equal(parse("GET / HTTP/1.1\r\nHost: x\r\nConnection: foo, Close\r\n\r\n", &h), 0);
    assert_false(h.keep_alive);
    http_head_free(&h);
    assert_int_equal(parse("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", &h), 0);
    assert_true(h.keep_alive);
    http_head_free(&h);
    assert_int_equal(parse("GET / HTTP/1.0\r\n\r\n", &h), 0);
    assert_false(h.keep_alive);
    http_head_free(&h);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int status;
    } cases[] = {
        {"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501},
        {"GET / HTTP/1.1\r\nHost: x\r\n folded: y\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n\r\n", 400},
        {"GET / HTTP/3.0\r\nHost: x\r\n\r\n", 505},
        {"GET /%0 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"GET / HTTP/1.1\nHost: x\n\n", 400},
    };
    struct http_head h;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) assert_int_equal(parse(cases[i].text, &h), cases[i].status);
}

static void test_where_a_head_ends(void **state)
{
    (void)state;
    static const char text[] = "GET / HTTP/1.1\r\nA: b\r\n\r\nbody";
    for (size_t n = 0; n < sizeof text - 5; n++) assert_int_equal(http_head_end(text, n), 0);
    assert_int_equal(http_head_end(text, sizeof text - 1), sizeof text - 5);
}

static void test_chunks_at_every_cut(void **state)
{
    (void)state;
    static const char text[] = "3;x=y\r\nabc\r\n00A\r\n0123456789\r\n0\r\nT: u\r\n\r\nrest";
    size_t whole = sizeof text - 5;
    for (size_t cut = 0; cut < whole; cut++) {
        struct http_chunks c = {0};
        struct buf body = {0};
        size_t used, more;
        assert_int_equal(http_chunks_feed(&c, text, cut, 100, &body, &used), HTTP_CHUNK_MORE);
        assert_int_equal(used, cut);
        assert_int_equal(http_chunks_feed(&c, text + cut, sizeof text - 1 - cut, 100, &body, &more), HTTP_CHUNK_DONE);
        assert_int_equal(used + more, whole);
        assert_string_equal(buf_str(&body), "abc0123456789");
        buf_free(&body);
    }
}

static void test_chunks_too_long(void **state)
{
    (void)state;
    struct http_chunks c = {0};
    struct buf body = {0};
    size_t used;
    assert_int_equal(http_chunks_feed(&c, "5\r\nabcde\r\n6\r\nabcdef", 19, 10, &body, &used), HTTP_CHUNK_TOO_LONG);
    assert_int_equal(body.len, 5);
    buf_free(&body);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_head),           cmocka_unit_test(test_connection),
        cmocka_unit_test(test_refused),          cmocka_unit_test(test_where_a_head_ends),
        cmocka_unit_test(test_chunks_at_every_cut), cmocka_unit_test(test_chunks_too_long),
    };
    return RUN_TESTS(tests);
}
