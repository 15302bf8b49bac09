/* SPDX-License-Identifier: MIT OR Apache-2.0 */

/* Vegas (Brakmo and Peterson 1995): keep between two and four packets of one's own in the queue. Once a
 * round trip, with the smallest RTT of that round trip,
 *
 *     diff = cwnd (RTT - BaseRTT) / BaseRTT      packets queued     (1)
 *     diff < alpha: cwnd += 1;   diff > beta: cwnd -= 1             (2)
 *
 * As Linux has it: (1) divides by BaseRTT where the paper divides by RTT and counts whole packets, slow
 * start doubles every round trip and not every other one, and losses halve the window as Reno's do.
 * crates/congestion/src/vegas.rs is the same for the simulator. */

#include "window.h"

/* fewer packets queued: grow (Linux's alpha) */
#define ALPHA 2
/* more packets queued: shrink (Linux's beta) */
#define BETA 4
/* more packets queued: leave slow start (Linux's gamma) */
#define GAMMA 1
/* with no more RTT samples than this a round trip says nothing, and Reno's rule holds (Linux) */
#define FEW_SAMPLES 2

#define NO_RTT (~0u)

struct vegas {
	u32 base_rtt_us;
	u32 round_min_rtt_us;
	/* of this round trip */
	u32 samples;
	/* the round trip ends when this is acknowledged */
	u32 round_end;
	/* outside of any recovery, so that RTTs can be trusted */
	u32 steady;
	u32 known_ssthresh;
};

ALWAYS_INLINE struct vegas *state_of(u64 *ctx)
{
	struct inet_connection_sock *icsk = (void *)ctx[0];

	return (struct vegas *)icsk->icsk_ca_priv;
}

ALWAYS_INLINE void begin_round(struct vegas *vegas, const struct tcp_sock *tp)
{
	vegas->round_min_rtt_us = NO_RTT;
	vegas->samples = 0;
	vegas->round_end = tp->snd_nxt;
}

ALWAYS_INLINE void begin(u64 *ctx)
{
	struct vegas *vegas = state_of(ctx);

	vegas->base_rtt_us = NO_RTT;
	vegas->steady = 1;
	begin_round(vegas, (const void *)ctx[0]);
}

SEC("struct_ops") void init(u64 *ctx)
{
	begin(ctx);
}

ALWAYS_INLINE u32 after_loss(u32 cwnd)
{
	return max(cwnd / 2, 2);
}

SEC("struct_ops") u32 ssthresh(u64 *ctx)
{
	const struct tcp_sock *tp = (const void *)ctx[0];

	return state_of(ctx)->known_ssthresh = after_loss(tp->snd_cwnd);
}

SEC("struct_ops") void pkts_acked(u64 *ctx)
{
	struct tcp_sock *tp = (void *)ctx[0];
	struct vegas *vegas = state_of(ctx);
	const struct ack_sample *sample = (const void *)ctx[1];
	s32 rtt_us = sample->rtt_us;

	mend_ssthresh(tp, &vegas->known_ssthresh, after_loss(tp->prior_cwnd));
	if (rtt_us < 0)
		return;
	/* the clock's step is 1 us, and nothing is divided by 0 */
	rtt_us = max(rtt_us, 1);
	vegas->base_rtt_us = min(vegas->base_rtt_us, rtt_us);
	vegas->round_min_rtt_us = min(vegas->round_min_rtt_us, rtt_us);
	vegas->samples++;
}

SEC("struct_ops") void set_state(u64 *ctx)
{
	struct vegas *vegas = state_of(ctx);
	u8 to = ctx[1];

	vegas->steady = to == CA_OPEN;
	if (vegas->steady)
		begin_round(vegas, (const void *)ctx[0]);
}

SEC("struct_ops") void cwnd_event(u64 *ctx)
{
	u32 event = ctx[1];

	/* the path may have changed meanwhile */
	if (event == CA_EVENT_TX_START || event == CA_EVENT_CWND_RESTART)
		begin(ctx);
}

ALWAYS_INLINE void reno(struct tcp_sock *tp, u32 acked)
{
	if (!cwnd_limited(tp))
		return;
	if (in_slow_start(tp))
		acked = slow_start(tp, acked);
	if (acked)
		grow(tp, acked, tp->snd_cwnd);
}

/* The decision at the end of a round trip that had enough samples. */
ALWAYS_INLINE void decide(struct tcp_sock *tp, const struct vegas *vegas, u32 acked)
{
	u32 cwnd = tp->snd_cwnd;
	u32 ssthresh = tp->snd_ssthresh;
	u64 base_us = vegas->base_rtt_us;
	u64 rtt_us = vegas->round_min_rtt_us;
	u64 diff = cwnd * (rtt_us - base_us) / base_us; /* (1) */

	if (in_slow_start(tp)) {
		if (diff <= GAMMA) {
			if (cwnd_limited(tp))
				slow_start(tp, acked);
			return;
		}
		/* to what the path would hold without a queue, and one more */
		cwnd = min(cwnd, cwnd * base_us / rtt_us + 1);
		ssthresh = min(ssthresh, cwnd - 1);
	} else if (diff > BETA) {
		cwnd = cwnd - 1; /* (2) */
		ssthresh = min(ssthresh, cwnd - 1);
	} else if (diff < ALPHA) {
		cwnd = cwnd + 1; /* (2) */
	}
	tp->snd_cwnd = min(max(cwnd, 2), tp->snd_cwnd_clamp);
	tp->snd_ssthresh = max(ssthresh, 2);
}

SEC("struct_ops") void cong_avoid(u64 *ctx)
{
	struct tcp_sock *tp = (void *)ctx[0];
	struct vegas *vegas = state_of(ctx);
	u32 ack = ctx[1];
	u32 acked = ctx[2];

	if (!vegas->steady) {
		reno(tp, acked);
		return;
	}
	if ((s32)(ack - vegas->round_end) > 0) {
		if (vegas->samples > FEW_SAMPLES)
			decide(tp, vegas, acked);
		else
			reno(tp, acked);
		begin_round(vegas, tp);
	} else if (in_slow_start(tp) && cwnd_limited(tp)) {
		slow_start(tp, acked);
	}
}

SEC("struct_ops") u32 undo_cwnd(u64 *ctx)
{
	return window_before_loss((const void *)ctx[0]);
}

SEC(".struct_ops.link") struct tcp_congestion_ops scheme = {
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)init,
	.ssthresh = (void *)ssthresh,
	.cong_avoid = (void *)cong_avoid,
	.set_state = (void *)set_state,
	.cwnd_event = (void *)cwnd_event,
	.pkts_acked = (void *)pkts_acked,
	.undo_cwnd = (void *)undo_cwnd,
};

/* The kernel takes congestion controls only under a license that is compatible with its own. This file and
 * those that it includes are under the project's licenses, and under GPL-2.0 as well. */
char LICENSE[] SEC("license") = "Dual MIT/GPL";
