use super::*;

#[test]
fn one_timer_waits_for_all_that_may_yet_come() {
    let at = |millis| Time::ZERO + Span::from_millis(millis);
    let mut board = Scoreboard::default();
    for sent in [0, 1, 2, 3, 4] {
        board.send_new(at(sent));
    }
    let mut ack = AckSegment::new(0);
    ack.push(SackBlock { start: 2, end: 4 });
    board.on_ack(at(103), &ack, None);
    // 0 and 1 were sent before 3, which took 100 ms; 4 was sent after it
    let (lost, look_again) = board.detect_losses(at(103), Span::from_millis(25));
    assert_eq!((lost, look_again), (0, Some(at(1 + 100 + 25 + 2))));
    // an acknowledgment in between looks at each by its own time
    assert_eq!(board.detect_losses(at(125), Span::from_millis(25)).0, 1);
}

#[test]
fn the_first_lost_packet_in_sequence_is_sent_again_first() {
    let at = |millis| Time::ZERO + Span::from_millis(millis);
    let mut board = Scoreboard::default();
    (0..10).for_each(|_| assert!(board.send_new(at(0)) < 10));
    let sack = |start, end| {
        let mut ack = AckSegment::new(0);
        ack.push(SackBlock { start, end });
        ack
    };
    board.on_ack(at(100), &sack(4, 10), None);
    assert_eq!(board.detect_losses(at(100), Span::ZERO).0, 4);
    assert_eq!(board.retransmit(at(100)), Some(0));
    // its copy is lost too, as a packet sent after it shows
    assert_eq!(board.send_new(at(101)), 10);
    board.on_ack(at(201), &sack(4, 11), None);
    assert_eq!(board.detect_losses(at(201), Span::ZERO).0, 1);
    let again: Vec<u64> = std::iter::from_fn(|| board.retransmit(at(201))).collect();
    assert_eq!(again, [0, 1, 2, 3]);
}

#[test]
fn a_packet_that_waits_to_be_sent_again_is_not_lost_twice() {
    let at = |millis| Time::ZERO + Span::from_millis(millis);
    let mut board = Scoreboard::default();
    (0..5).for_each(|_| assert!(board.send_new(at(0)) < 5));
    board.mark_lost_on_timeout(at(1000));
    board.mark_lost_on_timeout(at(3000));
    assert_eq!((board.found_lost(), board.waiting()), (5, 5));
    let again: Vec<u64> = std::iter::from_fn(|| board.retransmit(at(3000))).collect();
    assert_eq!(again, [0, 1, 2, 3, 4]);
}

#[test]
fn packets_in_order_are_taken_together_as_one_by_one() {
    let at = |millis| Time::ZERO + Span::from_millis(millis);
    let mut board = Scoreboard::default();
    for sent in 0..10 {
        board.send_new(at(sent));
    }
    let (mut together, mut one_by_one) = (board.clone(), board);
    for cumulative in [1, 4, 9] {
        let ack = AckSegment::new(cumulative);
        // a duplicate is a block, with which each packet is looked at
        let mut with_block = ack;
        with_block.push_duplicate(0);
        let now = at(100 + cumulative);
        let expected = one_by_one.on_ack(now, &with_block, None);
        let delivery = together.on_ack(now, &ack, None);
        assert_eq!(format!("{delivery:?}"), format!("{expected:?}"));
        assert_eq!(format!("{together:?}"), format!("{one_by_one:?}"));
    }
}
