/* SPDX-License-Identifier: MIT OR Apache-2.0 */

/* Gives accepted connections what the longest prefix that holds the client says: initial window, congestion
 * control, pacing. Two tries take turns, so that a configuration comes into force as a whole. */

typedef unsigned char u8;
typedef unsigned int u32;

#define SEC(name) __attribute__((section(name), used))
#define UINT(name, value) int(*name)[value]
#define TYPE(name, type) type *name

/* linux/bpf.h: a part of the kernel's interface that never changes */
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_LPM_TRIE 11
#define BPF_F_NO_PREALLOC 1
#define BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB 5
#define TCP_BPF_IW 1001
/* asm-generic/socket.h, linux/tcp.h, sys/socket.h */
#define SOL_SOCKET 1
#define SO_MAX_PACING_RATE 47
#define SOL_TCP 6
#define TCP_CONGESTION 13
#define AF_INET 2
#define AF_INET6 10

#define TCP_CA_NAME_MAX 16
#define MOST_PREFIXES 1000000
/* any rate but all ones makes TCP pace by itself; this one is above what a socket reaches */
#define FASTEST 0xfffffffe

struct bpf_sock_ops {
	u32 op;
	u32 args[4];
	u32 family;
	u32 remote_ip4;
	u32 local_ip4;
	u32 remote_ip6[4];
};

static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const set_option)(void *socket, int level, int name, void *value, int size) = (void *)49;

struct key {
	u32 bits;
	u32 address[4];
};

struct beginning {
	u32 initial_window;
	u32 paced;
	char scheme[TCP_CA_NAME_MAX];
};

struct trie {
	UINT(type, BPF_MAP_TYPE_LPM_TRIE);
	TYPE(key, struct key);
	TYPE(value, struct beginning);
	UINT(max_entries, MOST_PREFIXES);
	UINT(map_flags, BPF_F_NO_PREALLOC);
};

struct trie first SEC(".maps");
struct trie second SEC(".maps");

/* 0: the first trie is in use; 1: the second */
struct {
	UINT(type, BPF_MAP_TYPE_ARRAY);
	TYPE(key, u32);
	TYPE(value, u32);
	UINT(max_entries, 1);
} in_use SEC(".maps");

/* Keeps the compiler from joining loads of the context, which the kernel refuses. */
#define APART(value) asm volatile("" : : "r"(value))

SEC("sockops") int begin(struct bpf_sock_ops *socket)
{
	struct key key = { .bits = 128 };
	struct beginning *found;
	u32 zero = 0, family, *which;
	int value;

	if (socket->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		return 1;
	family = socket->family;
	if (family == AF_INET) {
		/* as an IPv4-mapped address; big-endian */
		u8 *ones = (u8 *)&key.address[2];

		ones[2] = 0xff;
		ones[3] = 0xff;
		key.address[3] = socket->remote_ip4;
		APART(key.address[3]);
	} else if (family == AF_INET6) {
		key.address[0] = socket->remote_ip6[0];
		APART(key.address[0]);
		key.address[1] = socket->remote_ip6[1];
		APART(key.address[1]);
		key.address[2] = socket->remote_ip6[2];
		APART(key.address[2]);
		key.address[3] = socket->remote_ip6[3];
		APART(key.address[3]);
	} else {
		return 1;
	}
	which = map_lookup(&in_use, &zero);
	if (!which)
		return 1;
	found = *which ? map_lookup(&second, &key) : map_lookup(&first, &key);
	if (!found)
		return 1;
	/* the congestion control first: it may set a window when it begins */
	if (found->scheme[0])
		set_option(socket, SOL_TCP, TCP_CONGESTION, found->scheme, TCP_CA_NAME_MAX);
	if (found->initial_window) {
		value = found->initial_window;
		set_option(socket, SOL_TCP, TCP_BPF_IW, &value, sizeof(value));
	}
	if (found->paced) {
		value = FASTEST;
		set_option(socket, SOL_SOCKET, SO_MAX_PACING_RATE, &value, sizeof(value));
	}
	return 1;
}

char _license[] SEC("license") = "Dual MIT/GPL";
