/* SPDX-License-Identifier: MIT OR Apache-2.0 */

/* Scalable TCP (Kelly 2003): cwnd += 0.01 for each packet acknowledged, cwnd -= cwnd / 8 on loss. Below 100
 * packets it grows as Reno does. crates/congestion/src/scalable.rs is the same for the simulator. */

#include "window.h"

/* the inverse of a = 0.01 (Kelly 2003, section 3) */
#define ACKS_PER_INCREASE 100
/* the inverse of b = 1/8 */
#define DECREASE 8

struct scalable {
	u32 known_ssthresh;
};

ALWAYS_INLINE struct scalable *state_of(u64 *ctx)
{
	struct inet_connection_sock *icsk = (void *)ctx[0];

	return (struct scalable *)icsk->icsk_ca_priv;
}

ALWAYS_INLINE u32 after_loss(u32 cwnd)
{
	return max(cwnd - cwnd / DECREASE, 2);
}

SEC("struct_ops") u32 ssthresh(u64 *ctx)
{
	const struct tcp_sock *tp = (const void *)ctx[0];

	return state_of(ctx)->known_ssthresh = after_loss(tp->snd_cwnd);
}

SEC("struct_ops") void pkts_acked(u64 *ctx)
{
	struct tcp_sock *tp = (void *)ctx[0];

	mend_ssthresh(tp, &state_of(ctx)->known_ssthresh, after_loss(tp->prior_cwnd));
}

SEC("struct_ops") void cong_avoid(u64 *ctx)
{
	struct tcp_sock *tp = (void *)ctx[0];
	u32 acked = ctx[2];

	if (!cwnd_limited(tp))
		return;
	if (in_slow_start(tp))
		acked = slow_start(tp, acked);
	if (acked)
		grow(tp, acked, min(tp->snd_cwnd, ACKS_PER_INCREASE));
}

SEC("struct_ops") u32 undo_cwnd(u64 *ctx)
{
	return window_before_loss((const void *)ctx[0]);
}

SEC(".struct_ops.link") struct tcp_congestion_ops scheme = {
	.flags = TCP_CONG_NON_RESTRICTED,
	.ssthresh = (void *)ssthresh,
	.cong_avoid = (void *)cong_avoid,
	.pkts_acked = (void *)pkts_acked,
	.undo_cwnd = (void *)undo_cwnd,
};

/* The kernel takes congestion controls only under a license that is compatible with its own. This file and
 * those that it includes are under the project's licenses, and under GPL-2.0 as well. */
char LICENSE[] SEC("license") = "Dual MIT/GPL";
