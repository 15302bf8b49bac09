/* SPDX-License-Identifier: MIT OR Apache-2.0 */

/* What loss-based schemes have in common: RFC 5681, and RFC 2861 for windows that are not used. */

#pragma once

#include "kernel.h"

ALWAYS_INLINE u32 min(u32 a, u32 b)
{
	return a < b ? a : b;
}

ALWAYS_INLINE u32 max(u32 a, u32 b)
{
	return a > b ? a : b;
}

ALWAYS_INLINE int in_slow_start(const struct tcp_sock *tp)
{
	return tp->snd_cwnd < tp->snd_ssthresh;
}

/* Whether the window may grow: one that is not used must not. In slow start half of it is enough, or the
 * window would stop growing whenever the sender pauses for a moment. */
ALWAYS_INLINE int cwnd_limited(const struct tcp_sock *tp)
{
	if (used_whole_window(tp))
		return 1;
	return in_slow_start(tp) && tp->snd_cwnd < 2 * tp->max_packets_out;
}

/* cwnd += 1 for each packet acknowledged (RFC 5681, section 3.1), until ssthresh. Gives the packets that
 * are left for congestion avoidance. */
ALWAYS_INLINE u32 slow_start(struct tcp_sock *tp, u32 acked)
{
	u32 cwnd = tp->snd_cwnd;
	u32 up = min(acked, tp->snd_ssthresh - cwnd);

	tp->snd_cwnd = min(cwnd + up, tp->snd_cwnd_clamp);
	return acked - up;
}

/* cwnd += acked / packets, with the remainder kept for later. */
ALWAYS_INLINE void grow(struct tcp_sock *tp, u32 acked, u32 packets)
{
	u32 credit = tp->snd_cwnd_cnt + acked;
	u32 up;

	packets = max(packets, 1);
	up = credit / packets;
	tp->snd_cwnd_cnt = credit - up * packets;
	tp->snd_cwnd = min(tp->snd_cwnd + up, tp->snd_cwnd_clamp);
}

/* Puts ssthresh right at an acknowledgment, if a loss is being answered and its ssthresh is not what the
 * scheme said. There are kernels that ask for ssthresh where they do not run the program (over a process
 * that BPF must not touch, or over the program itself), and then take what lay on their stack for its
 * answer: some 10^8 packets, and the flow would heed no loss any more. While a loss is answered the kernel
 * does not change ssthresh by itself; before and after it may.
 * known: ssthresh as the scheme last said it, or as it last was outside of recovery; 0 if not known.
 * right: what the scheme says of prior_cwnd. */
ALWAYS_INLINE void mend_ssthresh(struct tcp_sock *tp, u32 *known, u32 right)
{
	if (*known && tp->snd_ssthresh != *known && answers_loss((const void *)tp))
		tp->snd_ssthresh = right;
	*known = tp->snd_ssthresh;
}

/* The window to go back to when a loss was none. */
ALWAYS_INLINE u32 window_before_loss(const struct tcp_sock *tp)
{
	return max(tp->snd_cwnd, tp->prior_cwnd);
}
