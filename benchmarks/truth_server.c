/* A server that says the truth about itself: it streams tokens on a fixed schedule over HTTP/1.1 and notes when it
 * handed each of them to the kernel (CLOCK_MONOTONIC). One thread, one epoll. `load_client.py` builds and starts it.
 *
 *     cc -O2 -o truth_server truth_server.c
 *     ./truth_server --port 8100 --ttft-us 50000 --itl-us 10000
 *
 * POST /v1/completions, /v1/chat/completions, /generate: a stream of max_tokens (max_new_tokens) tokens, or with
 *     "stream": false one JSON object. The first token is sent ttft after the request arrived, token k exactly
 *     ttft + k * itl after it, however late the ones before were. With both at 0 tokens go out as fast as they can,
 *     every open stream in its turn.
 * GET /_set?ttft_us=&itl_us=&per_event=&burst=&grid=&spin=   change the schedule, forget all requests
 *     per_event  tokens in an event        burst  events in a write when flat out
 *     grid=1     tokens of all streams fall on common multiples of itl, as the decode steps of a batch do
 *     spin=1     poll instead of sleeping for the last 100 us before a token is due
 * GET /_truth   what was sent, see `put_truth`
 * GET /v1/models, /server_info, ...: what the clients of other tools want to see before they start.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ID "3f2c9a7d5b8e4f01a6c2d9e8b7f60512"
#define MAX_TOKENS 65536
#define SPIN_NS 100000
#define VARIANTS 64 /* different texts, so that events are not all alike */

enum kind { COMPLETIONS, CHAT, GENERATE, KINDS };

static struct {
    uint64_t ttft, itl;
    int per_event, burst, grid, spin;
} plan = {0, 0, 1, 1, 0, 1};

static uint64_t ns(struct timespec t) { return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec; }

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return ns(t);
}

/* When the kernel received what was read last (SO_TIMESTAMPNS is CLOCK_REALTIME), so that the time this process took
 * to wake up is nobody's. Without a stamp: now. */
static uint64_t received(struct msghdr *message) {
    struct cmsghdr *c = CMSG_FIRSTHDR(message);
    struct timespec stamp, real;
    uint64_t t = now();
    if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_TIMESTAMPNS) return t;
    memcpy(&stamp, CMSG_DATA(c), sizeof stamp);
    clock_gettime(CLOCK_REALTIME, &real);
    uint64_t age = ns(real) - ns(stamp);
    return age < 1000000000u ? t - age : t;
}

/* --- bytes ------------------------------------------------------------------------------------------------- */

struct bytes {
    char *at;
    size_t used, size;
};

static void put(struct bytes *b, const void *data, size_t n) {
    if (b->used + n > b->size) {
        while (b->used + n > b->size) b->size = b->size ? b->size * 2 : 4096;
        b->at = realloc(b->at, b->size);
    }
    memcpy(b->at + b->used, data, n);
    b->used += n;
}

static void put_text(struct bytes *b, const char *text) { put(b, text, strlen(text)); }

/* An event as one HTTP chunk. */
static void put_chunk(struct bytes *b, const char *event, size_t n) {
    char size[32];
    put(b, size, (size_t)sprintf(size, "%zx\r\n", n));
    put(b, event, n);
    put(b, "\r\n", 2);
}

/* --- what was sent ----------------------------------------------------------------------------------------- */

struct request {
    uint64_t number;  /* "request_number" in the body, else UINT64_MAX */
    uint64_t arrived; /* when the kernel received the last of it */
    uint64_t ended;
    uint64_t tokens;
    uint64_t events;
    uint64_t blocked; /* writes that the client's full socket refused at first */
    uint64_t *sent;   /* just before the write of each event */
    uint64_t *wrote;  /* just after it: what the truth itself is good for */
};

static struct request *requests;
static size_t request_count, request_room;

/* Little-endian u64: count, then for each request number, arrived, ended, tokens, events, blocked, and the stamps
 * before and after each event's write. */
static void put_truth(struct bytes *b) {
    uint64_t count = request_count;
    put(b, &count, 8);
    for (size_t i = 0; i < request_count; i++) {
        put(b, &requests[i], 6 * 8);
        put(b, requests[i].sent, 8 * requests[i].events);
        put(b, requests[i].wrote, 8 * requests[i].events);
    }
}

/* --- connections, and who is due next ---------------------------------------------------------------------- */

struct connection {
    int fd;
    struct bytes in, out;
    size_t written; /* of out */
    int streaming, whole, head_due, usage;
    enum kind kind;
    size_t request;
    int tokens, events, said, next_event;
    uint64_t base, due;
    long heap_at; /* -1: not in the heap */
    int queued, waits_to_write;
    struct connection *next;
};

static int poller;
static struct connection **heap;
static size_t heap_used, heap_room;

static void heap_set(size_t i, struct connection *c) {
    heap[i] = c;
    c->heap_at = (long)i;
}

static void heap_sift(size_t i) {
    struct connection *c = heap[i];
    while (i && heap[(i - 1) / 2]->due > c->due) {
        heap_set(i, heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= heap_used) break;
        if (child + 1 < heap_used && heap[child + 1]->due < heap[child]->due) child++;
        if (heap[child]->due >= c->due) break;
        heap_set(i, heap[child]);
        i = child;
    }
    heap_set(i, c);
}

static void heap_add(struct connection *c) {
    if (heap_used == heap_room) {
        heap_room = heap_room ? heap_room * 2 : 1024;
        heap = realloc(heap, heap_room * sizeof *heap);
    }
    heap_set(heap_used++, c);
    heap_sift(heap_used - 1);
}

static void heap_remove(struct connection *c) {
    if (c->heap_at < 0) return;
    size_t i = (size_t)c->heap_at;
    c->heap_at = -1;
    if (i != --heap_used) {
        heap_set(i, heap[heap_used]);
        heap_sift(i);
    }
}

/* Flat out: streams in a ring. */
static struct connection *ring_head, *ring_tail;

static void ring_add(struct connection *c) {
    if (c->queued) return;
    c->queued = 1;
    c->next = NULL;
    if (ring_tail) ring_tail->next = c;
    else ring_head = c;
    ring_tail = c;
}

static struct connection *ring_take(void) {
    struct connection *c = ring_head;
    if (c) {
        ring_head = c->next;
        if (!ring_head) ring_tail = NULL;
        c->queued = 0;
    }
    return c;
}

static void ring_remove(struct connection *c) {
    if (!c->queued) return;
    struct connection **link = &ring_head, *last = NULL;
    while (*link && *link != c) {
        last = *link;
        link = &(*link)->next;
    }
    if (*link) *link = c->next;
    if (ring_tail == c) ring_tail = last;
    c->queued = 0;
}

static void hang_up(struct connection *c) {
    heap_remove(c);
    ring_remove(c);
    if (c->streaming) requests[c->request].ended = now();
    close(c->fd);
    free(c->in.at);
    free(c->out.at);
    free(c);
}

static void want_write(struct connection *c, int wanted) {
    if (c->waits_to_write == wanted) return;
    c->waits_to_write = wanted;
    struct epoll_event e = {.events = EPOLLIN | (wanted ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &e);
}

/* 0: all is written, 1: the rest waits for the client, -1: the connection is gone. */
static int flush(struct connection *c) {
    while (c->written < c->out.used) {
        ssize_t n = send(c->fd, c->out.at + c->written, c->out.used - c->written, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno != EAGAIN) return -1;
        if (n < 0) {
            if (c->streaming) requests[c->request].blocked++;
            want_write(c, 1);
            return 1;
        }
        c->written += (size_t)n;
    }
    c->written = c->out.used = 0;
    want_write(c, 0);
    return 0;
}

/* --- events, written once and sent many times -------------------------------------------------------------- */

static struct bytes usual[2][VARIANTS], final[2][VARIANTS], role, cumulative[MAX_TOKENS + 1];

static void render(void) {
    static const char *format[2] = {
        "data: {\"id\":\"cmpl-" ID "\",\"object\":\"text_completion\",\"created\":1764400000,\"model\":\"mock\","
        "\"choices\":[{\"index\":0,\"text\":\"%s\",\"logprobs\":null,\"finish_reason\":%s,\"stop_reason\":null}],"
        "\"usage\":null}\n\n",
        "data: {\"id\":\"chatcmpl-" ID "\",\"object\":\"chat.completion.chunk\",\"created\":1764400000,"
        "\"model\":\"mock\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%s\"},\"logprobs\":null,"
        "\"finish_reason\":%s}]}\n\n"};
    char text[8192], event[16384];
    for (int v = 0; v < VARIANTS; v++) {
        char *end = text;
        for (int k = 0; k < plan.per_event; k++) end += sprintf(end, " w%02d", (v * plan.per_event + k) % 90 + 10);
        for (int kind = 0; kind < 2; kind++) {
            usual[kind][v].used = final[kind][v].used = 0;
            put_chunk(&usual[kind][v], event, (size_t)sprintf(event, format[kind], text, "null"));
            put_chunk(&final[kind][v], event, (size_t)sprintf(event, format[kind], text, "\"length\""));
        }
    }
    if (!role.used)
        put_chunk(&role, event,
                  (size_t)sprintf(event, "data: {\"id\":\"chatcmpl-" ID "\",\"object\":\"chat.completion.chunk\","
                                         "\"created\":1764400000,\"model\":\"mock\",\"choices\":[{\"index\":0,"
                                         "\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
                                         "\"finish_reason\":null}]}\n\n"));
}

/* SGLang's native stream: each event has all of the text so far, and the count. */
static void put_cumulative(struct bytes *b, int tokens, int last) {
    struct bytes made = {0}, *kept = last ? &made : &cumulative[tokens];
    if (!kept->used) {
        struct bytes event = {0};
        char part[256];
        put_text(&event, "data: {\"text\":\"");
        for (int i = 0; i < tokens; i++) put(&event, part, (size_t)sprintf(part, " w%02d", i % 90 + 10));
        put_text(&event, "\",\"output_ids\":[");
        for (int i = 0; i < tokens; i++) put(&event, part, (size_t)sprintf(part, i ? ",%d" : "%d", 1000 + i % 90));
        char finish[64] = "null";
        if (last) sprintf(finish, "{\"type\":\"length\",\"length\":%d}", tokens);
        put(&event, part,
            (size_t)sprintf(part, "],\"meta_info\":{\"id\":\"" ID "\",\"finish_reason\":%s,\"prompt_tokens\":32,"
                                  "\"weight_version\":\"default\",\"completion_tokens\":%d,\"cached_tokens\":0}}\n\n",
                            finish, tokens));
        put_chunk(kept, event.at, event.used);
        free(event.at);
    }
    put(b, kept->at, kept->used);
    free(made.at);
}

static void finish(struct connection *c) {
    char event[512];
    if (c->usage && c->kind != GENERATE)
        put_chunk(&c->out, event,
                  (size_t)sprintf(event, "data: {\"id\":\"cmpl-" ID "\",\"object\":\"%s\",\"created\":1764400000,"
                                         "\"model\":\"mock\",\"choices\":[],\"usage\":{\"prompt_tokens\":32,"
                                         "\"total_tokens\":%d,\"completion_tokens\":%d}}\n\n",
                                  c->kind == CHAT ? "chat.completion.chunk" : "text_completion", 32 + c->tokens,
                                  c->tokens));
    put_text(&c->out, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
    c->streaming = 0;
    requests[c->request].ended = now();
}

static void answer(struct connection *c, const char *type, const void *body, size_t n) {
    char head[256];
    put(&c->out, head,
        (size_t)sprintf(head, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n", type, n));
    put(&c->out, body, n);
}

static void answer_json(struct connection *c, const char *body) {
    answer(c, "application/json", body, strlen(body));
}

/* The whole text at once, for a client that asked for no stream. */
static void put_whole(struct connection *c) {
    struct bytes body = {0};
    char part[256];
    static const char *open[KINDS] = {
        "{\"id\":\"x\",\"object\":\"text_completion\",\"created\":1,\"model\":\"mock\",\"choices\":[{\"index\":0,"
        "\"finish_reason\":\"length\",\"text\":\"",
        "{\"id\":\"x\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"mock\",\"choices\":[{\"index\":0,"
        "\"finish_reason\":\"length\",\"message\":{\"role\":\"assistant\",\"content\":\"",
        "{\"text\":\""};
    put_text(&body, open[c->kind]);
    for (int i = 0; i < c->tokens; i++) put(&body, part, (size_t)sprintf(part, " w%02d", i % 90 + 10));
    if (c->kind == GENERATE)
        sprintf(part,
                "\",\"meta_info\":{\"id\":\"x\",\"finish_reason\":{\"type\":\"length\",\"length\":%d},"
                "\"prompt_tokens\":32,\"completion_tokens\":%d,\"cached_tokens\":0}}",
                c->tokens, c->tokens);
    else
        sprintf(part, "\"%s}],\"usage\":{\"prompt_tokens\":32,\"total_tokens\":%d,\"completion_tokens\":%d}}",
                c->kind == CHAT ? "}" : "", 32 + c->tokens, c->tokens);
    put_text(&body, part);
    answer(c, "application/json", body.at, body.used);
    free(body.at);
}

/* Write the next event into the buffer, stamped `t`; 1 when it was the last. */
static int emit(struct connection *c, uint64_t t) {
    struct request *r = &requests[c->request];
    r->sent[r->events++] = t;
    if (c->whole) {
        put_whole(c);
        r->tokens = (uint64_t)c->tokens;
        r->ended = t;
        c->streaming = 0;
        return 1;
    }
    if (c->head_due) {
        c->head_due = 0;
        put_text(&c->out, "HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
                          "connection: keep-alive\r\ntransfer-encoding: chunked\r\n\r\n");
        if (c->kind == CHAT) put(&c->out, role.at, role.used);
    }
    int last = c->next_event == c->events - 1;
    c->said += plan.per_event;
    if (c->said > c->tokens) c->said = c->tokens;
    if (c->kind == GENERATE) put_cumulative(&c->out, c->said, last);
    else {
        struct bytes *event = &(last ? final : usual)[c->kind][c->next_event % VARIANTS];
        put(&c->out, event->at, event->used);
    }
    r->tokens = (uint64_t)c->said;
    c->next_event++;
    if (last) finish(c);
    return last;
}

/* --- requests ---------------------------------------------------------------------------------------------- */

static long number_after(const char *text, const char *key, long otherwise) {
    const char *at = strstr(text, key);
    if (!at) return otherwise;
    at += strlen(key);
    while (*at == ' ' || *at == ':' || *at == '"') at++;
    return *at < '0' || *at > '9' ? otherwise : strtol(at, NULL, 10);
}

static int true_after(const char *text, const char *key) {
    const char *at = strstr(text, key);
    if (!at) return 0;
    at += strlen(key);
    while (*at == ' ' || *at == ':') at++;
    return !strncmp(at, "true", 4);
}

static void forget(void) {
    for (size_t i = 0; i < request_count; i++) {
        free(requests[i].sent);
        free(requests[i].wrote);
    }
    request_count = 0;
}

static void set(char *query) {
    struct {
        const char *key;
        int *value;
    } fields[] = {{"per_event", &plan.per_event}, {"burst", &plan.burst}, {"grid", &plan.grid}, {"spin", &plan.spin}};
    query[strcspn(query, " ")] = 0;
    long value = number_after(query, "ttft_us=", -1);
    if (value >= 0) plan.ttft = (uint64_t)value * 1000;
    value = number_after(query, "itl_us=", -1);
    if (value >= 0) plan.itl = (uint64_t)value * 1000;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        char key[32];
        sprintf(key, "%s=", fields[i].key);
        value = number_after(query, key, -1);
        if (value >= 0) *fields[i].value = (int)value;
    }
    render();
    forget();
}

static void begin(struct connection *c, enum kind kind, const char *body, uint64_t t) {
    long n = number_after(body, "\"max_tokens\"", -1);
    if (n < 0) n = number_after(body, "\"max_completion_tokens\"", -1);
    if (n < 0) n = number_after(body, "\"max_new_tokens\"", -1);
    c->tokens = n <= 0 ? 128 : n > MAX_TOKENS ? MAX_TOKENS : (int)n;
    c->kind = kind;
    c->events = (c->tokens + plan.per_event - 1) / plan.per_event;
    c->next_event = c->said = 0;
    c->whole = !true_after(body, "\"stream\"");
    c->usage = true_after(body, "\"include_usage\"");
    c->head_due = c->streaming = 1;
    if (request_count == request_room) {
        request_room = request_room ? request_room * 2 : 4096;
        requests = realloc(requests, request_room * sizeof *requests);
    }
    c->request = request_count++;
    long number = number_after(body, "\"request_number\"", -1);
    requests[c->request] = (struct request){
        .number = (uint64_t)number,
        .arrived = t,
        .sent = malloc(8 * (size_t)(c->events + 1)),
        .wrote = malloc(8 * (size_t)(c->events + 1)),
    };
    c->base = t + plan.ttft;
    if (plan.grid && plan.itl) c->base = (c->base + plan.itl - 1) / plan.itl * plan.itl;
    c->due = c->base + (c->whole ? plan.itl * (uint64_t)(c->events - 1) : 0);
    if (plan.itl == 0 && plan.ttft == 0) ring_add(c);
    else heap_add(c);
}

static int starts(const char *text, const char *with) { return !strncmp(text, with, strlen(with)); }

static void handle(struct connection *c, char *head, const char *body, uint64_t t) {
    static const char *posts[KINDS] = {"POST /v1/completions ", "POST /v1/chat/completions ", "POST /generate "};
    for (int kind = 0; kind < KINDS; kind++)
        if (starts(head, posts[kind])) {
            begin(c, (enum kind)kind, body, t);
            return;
        }
    if (starts(head, "GET /_set?")) {
        set(head + 10);
        answer_json(c, "{}");
    } else if (starts(head, "GET /_truth ")) {
        struct bytes truth = {0};
        put_truth(&truth);
        answer(c, "application/octet-stream", truth.at, truth.used);
        free(truth.at);
    } else if (starts(head, "GET /v1/models") || starts(head, "GET /models"))
        answer_json(c, "{\"object\":\"list\",\"data\":[{\"id\":\"mock\",\"object\":\"model\",\"created\":1764400000,"
                       "\"owned_by\":\"mock\",\"root\":\"mock\",\"max_model_len\":131072}]}");
    else if (starts(head, "GET /server_info") || starts(head, "GET /get_server_info"))
        answer_json(c, "{\"tp_size\":1,\"pp_size\":1,\"dp_size\":1,\"disaggregation_mode\":\"null\","
                       "\"speculative_algorithm\":null,\"internal_states\":[{}],\"decode\":[{}],"
                       "\"version\":\"0.5.23\"}");
    else if (starts(head, "GET /model_info") || starts(head, "GET /get_model_info"))
        answer_json(c, "{\"model_path\":\"mock\",\"tokenizer_path\":\"mock\",\"is_generation\":true}");
    else
        answer_json(c, "{}");
}

/* Length of the first request in the buffer, 0 while it is incomplete. */
static size_t whole_request(struct connection *c, size_t *head_size) {
    char *end = strstr(c->in.at, "\r\n\r\n");
    if (!end) return 0;
    *head_size = (size_t)(end + 4 - c->in.at);
    char kept = end[2];
    end[2] = 0;
    char *length = strcasestr(c->in.at, "\ncontent-length:");
    size_t body = length ? strtoul(length + 16, NULL, 10) : 0;
    int chunked = strcasestr(c->in.at, "\ntransfer-encoding: chunked") != NULL;
    end[2] = kept;
    if (chunked) {
        char *last = strstr(end + 4, "0\r\n\r\n");
        return last ? (size_t)(last + 5 - c->in.at) : 0;
    }
    return c->in.used >= *head_size + body ? *head_size + body : 0;
}

static void readable(struct connection *c) {
    struct bytes *in = &c->in;
    if (in->used + 65536 > in->size) {
        in->size = in->used + 131072;
        in->at = realloc(in->at, in->size + 1);
    }
    char control[64];
    struct iovec room = {in->at + in->used, in->size - in->used};
    struct msghdr message = {.msg_iov = &room, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(c->fd, &message, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        hang_up(c);
        return;
    }
    uint64_t t = received(&message);
    in->used += (size_t)n;
    in->at[in->used] = 0;
    size_t head, total;
    while (in->used && !c->streaming && (total = whole_request(c, &head))) {
        char kept = in->at[total];
        in->at[total] = 0;
        handle(c, in->at, in->at + head, t);
        in->at[total] = kept;
        memmove(in->at, in->at + total, in->used - total + 1);
        in->used -= total;
        if (c->out.used && flush(c) < 0) {
            hang_up(c);
            return;
        }
    }
}

/* --- the loop ---------------------------------------------------------------------------------------------- */

static void send_due(void) {
    uint64_t t = now();
    for (int k = 0; k < 64 && heap_used && heap[0]->due <= t; k++) {
        struct connection *c = heap[0];
        heap_remove(c);
        size_t request = c->request;
        int done = emit(c, t), state = flush(c);
        requests[request].wrote[requests[request].events - 1] = now();
        if (state < 0) hang_up(c);
        else if (!done) {
            c->due = c->base + plan.itl * (uint64_t)c->next_event;
            heap_add(c);
        }
        t = now();
    }
}

static void send_ring(void) {
    struct connection *last = ring_tail;
    for (int k = 0; k < 64; k++) {
        struct connection *c = ring_take();
        if (!c) return;
        int was_last = c == last, done = 0;
        uint64_t t = now();
        struct request *r = &requests[c->request];
        uint64_t before = r->events;
        for (int b = 0; b < plan.burst && !done; b++) done = emit(c, t);
        int state = flush(c);
        for (t = now(); before < r->events; before++) r->wrote[before] = t;
        if (state < 0) hang_up(c);
        else if (!done && state == 0) ring_add(c);
        if (was_last) return;
    }
}

static int wait_for_work(struct epoll_event *events, int room) {
    if (ring_head) return epoll_wait(poller, events, room, 0);
    if (!heap_used) return epoll_wait(poller, events, room, -1);
    int64_t left = (int64_t)heap[0]->due - (int64_t)now() - (plan.spin ? SPIN_NS : 0);
    if (left <= 0) return epoll_wait(poller, events, room, 0);
    struct timespec t = {left / 1000000000, left % 1000000000};
    return epoll_pwait2(poller, events, room, &t, NULL);
}

static void accept_all(int listener) {
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK), on = 1;
        if (fd < 0) return;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
        struct connection *c = calloc(1, sizeof *c);
        c->fd = fd;
        c->heap_at = -1;
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e);
    }
}

static void ready(struct epoll_event *e) {
    struct connection *c = e->data.ptr;
    if (e->events & (EPOLLHUP | EPOLLERR) && !(e->events & EPOLLIN)) {
        hang_up(c);
        return;
    }
    if (e->events & EPOLLOUT) {
        int state = flush(c);
        if (state < 0) {
            hang_up(c);
            return;
        }
        if (state == 0 && c->streaming && plan.itl == 0 && plan.ttft == 0) ring_add(c);
    }
    if (e->events & EPOLLIN) readable(c);
}

int main(int argc, char **argv) {
    int port = 8100;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--port")) port = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--ttft-us")) plan.ttft = strtoull(argv[i + 1], NULL, 10) * 1000;
        else if (!strcmp(argv[i], "--itl-us")) plan.itl = strtoull(argv[i + 1], NULL, 10) * 1000;
    }
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* no server outlives the benchmark */
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    render();
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    if (bind(listener, (void *)&address, size) || listen(listener, 4096)) {
        perror("bind");
        return 1;
    }
    getsockname(listener, (void *)&address, &size);
    printf("%d\n", ntohs(address.sin_port)); /* --port 0: whichever was free */
    fflush(stdout);
    poller = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL}, events[512];
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &e);
    for (;;) {
        send_due();
        send_ring();
        int n = wait_for_work(events, 512);
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr) ready(&events[i]);
            else accept_all(listener);
        }
    }
}
