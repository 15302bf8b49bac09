/* SPDX-License-Identifier: MIT OR Apache-2.0 */

/* The few kernel types that the schemes need. Only names and types of fields count: the loader looks up
 * where they are in the kernel that runs (CO-RE). */

#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define ALWAYS_INLINE static inline __attribute__((always_inline))

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct inet_connection_sock {
	u8 icsk_ca_state : 5;
	/* a scheme's own memory, zeros at first */
	u64 icsk_ca_priv[13];
};

struct tcp_sock {
	u32 snd_nxt;
	u32 snd_cwnd;
	/* acknowledged packets that have not yet made the window grow */
	u32 snd_cwnd_cnt;
	u32 snd_cwnd_clamp;
	u32 snd_ssthresh;
	/* the window when the last recovery began */
	u32 prior_cwnd;
	/* the most that was outstanding in the last round trip */
	u32 max_packets_out;
	u8 is_cwnd_limited : 1;
};

struct ack_sample {
	s32 rtt_us;
};

#pragma clang attribute pop

/* enum tcp_ca_state: this and those above it answer a loss or a mark */
#define CA_OPEN 0
#define CA_CWR 2

/* enum tcp_ca_event: the first packet after a pause, and a window made smaller because of one */
#define CA_EVENT_TX_START 0
#define CA_EVENT_CWND_RESTART 1

/* other congestion controls may be chosen by any user, and in any network namespace */
#define TCP_CONG_NON_RESTRICTED 1

/* The kernel's own has more fields, in another order: the loader goes by their names. The name comes first
 * here, so that the loader's caller can fill it in. */
struct tcp_congestion_ops {
	char name[16];
	u32 flags;
	void (*init)(void);
	u32 (*ssthresh)(void);
	void (*cong_avoid)(void);
	void (*set_state)(void);
	void (*cwnd_event)(void);
	void (*pkts_acked)(void);
	u32 (*undo_cwnd)(void);
};

/* Which bits of which byte a flag is differs between kernels: the loader fills these in. */
enum field_info {
	FIELD_BYTE_OFFSET = 0,
	FIELD_BYTE_SIZE = 1,
	FIELD_LSHIFT_U64 = 4,
	FIELD_RSHIFT_U64 = 5,
};

#define FIELD_INFO(field, info) __builtin_preserve_field_info(field, info)

/* `size` bytes at `at`, of which the shifts leave the flag. */
ALWAYS_INLINE u64 bits_at(const char *at, u64 size, u64 left, u64 right)
{
	u64 bits;

	/* keeps the compiler from putting the offset into the loads, where the loader would not see it */
	asm volatile("" : "+r"(at));
	switch (size) {
	case 1:
		bits = *(const u8 *)at;
		break;
	case 2:
		bits = *(const u16 *)at;
		break;
	case 4:
		bits = *(const u32 *)at;
		break;
	default:
		bits = *(const u64 *)at;
		break;
	}
	return bits << left >> right;
}

#define BITS(of, field) \
	bits_at((const char *)(of) + FIELD_INFO((of)->field, FIELD_BYTE_OFFSET), \
		FIELD_INFO((of)->field, FIELD_BYTE_SIZE), FIELD_INFO((of)->field, FIELD_LSHIFT_U64), \
		FIELD_INFO((of)->field, FIELD_RSHIFT_U64))

/* is_cwnd_limited: the last round trip used the whole window */
ALWAYS_INLINE int used_whole_window(const struct tcp_sock *tp)
{
	return BITS(tp, is_cwnd_limited) != 0;
}

/* From the loss or mark that makes the window smaller until that is done. */
ALWAYS_INLINE int answers_loss(const struct inet_connection_sock *icsk)
{
	return BITS(icsk, icsk_ca_state) >= CA_CWR;
}
