//! What one sink was told, and what waits for it. Plain data, with the time passed in.
//!
//! A ledger does not remember every message: all that is older than its floor counts as told. The floor of a new sink is
//! the time at which it came to be, so that it is not told of the past; afterwards it follows the oldest that is remembered,
//! never beyond what waits and is not kept in the hub: a leader finds that again in the statuses.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::message::Message;

/// Messages that wait for one sink, at most; and those of one namespace among them.
const MOST_WAITING: usize = 2_000;
const MOST_OF_A_NAMESPACE: usize = 200;
/// Messages that are remembered as told, at most, as long as the floor can follow; and whatever waits.
const MOST_TOLD: usize = 400;
const MOST_TOLD_EVER: usize = 4_000;
/// Bytes that the waiting messages of one sink take in the hub, at most: the rest is found again in the statuses.
const MOST_KEPT: usize = 12 * 1024;

/// The ledger of one sink.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Ledger {
    /// Unix seconds.
    floor: i64,
    /// When what was told came to be, by the message's ID.
    told: BTreeMap<String, i64>,
    waiting: VecDeque<Message>,
}

/// What became of a message that was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offered {
    /// It waits now.
    Waits,
    /// It was told, it waits, or it is older than the sink.
    Known,
    /// There is no room for it.
    Full,
}

impl Ledger {
    /// That of a sink which is new at `now`.
    pub(super) fn new(now: i64) -> Self {
        Self { floor: now, ..Self::default() }
    }

    /// Takes in a message unless the sink knows it.
    pub(super) fn offer(&mut self, message: &Message) -> Offered {
        let waits = || self.waiting.iter().any(|other| other.id == message.id);
        if message.at < self.floor || self.told.contains_key(&message.id) || waits() {
            return Offered::Known;
        }
        let of_its_namespace = self.waiting.iter().filter(|other| other.namespace == message.namespace);
        if self.waiting.len() >= MOST_WAITING || of_its_namespace.count() >= MOST_OF_A_NAMESPACE {
            return Offered::Full;
        }
        self.waiting.push_back(message.clone());
        Offered::Waits
    }

    /// What is to be sent next: the oldest whose namespace is none of those that have a message under way.
    pub(super) fn next(&self, under_way: &BTreeSet<String>) -> Option<&Message> {
        self.waiting.iter().find(|message| !under_way.contains(&message.namespace))
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// One was sent, or was given up.
    pub(super) fn done(&mut self, id: &str) {
        let place = self.waiting.iter().position(|message| message.id == id);
        let Some(message) = place.and_then(|place| self.waiting.remove(place)) else { return };
        self.told.insert(message.id, message.at);
        let unkept = self.waiting.iter().skip(self.kept_messages().count());
        let follows_to = unkept.map(|message| message.at).min().unwrap_or(i64::MAX);
        while self.told.len() > MOST_TOLD {
            let oldest = self.told.iter().min_by_key(|(_, at)| **at);
            let Some((id, at)) = oldest.map(|(id, at)| (id.clone(), *at)) else { return };
            // Without its ID, and with the floor below it, a message would be told again.
            if at >= follows_to && self.told.len() <= MOST_TOLD_EVER {
                return;
            }
            self.told.remove(&id);
            self.floor = self.floor.max((at + 1).min(follows_to));
        }
    }

    /// Those that wait and for which there is room in the hub.
    fn kept_messages(&self) -> impl Iterator<Item = &Message> {
        let mut bytes = 0;
        self.waiting.iter().take_while(move |message| {
            bytes += serde_json::to_string(message).map_or(MOST_KEPT, |text| text.len());
            bytes <= MOST_KEPT
        })
    }

    /// The same with as many waiting messages as there is room for in the hub.
    pub(super) fn kept(&self) -> Self {
        let waiting = self.kept_messages().cloned().collect();
        Self { waiting, floor: self.floor, told: self.told.clone() }
    }
}

#[cfg(test)]
mod tests {
    use statusbridge_core::decide::transition::Outcome;

    use super::super::message::tests::message;
    use super::*;

    fn at(time: i64) -> Message {
        message(Outcome::Succeeded, time)
    }

    fn of(namespace: &str, time: i64) -> Message {
        Message { namespace: namespace.to_owned(), ..at(time) }
    }

    fn next<'a>(ledger: &'a Ledger, under_way: &[&str]) -> Option<&'a Message> {
        ledger.next(&under_way.iter().map(|&namespace| namespace.to_owned()).collect())
    }

    /// What another process makes of it.
    fn restarted(ledger: &Ledger) -> Ledger {
        serde_json::from_str(&serde_json::to_string(&ledger.kept()).unwrap()).unwrap()
    }

    #[test]
    fn each_message_is_told_once_across_restarts_and_the_past_of_a_new_sink_is_not() {
        let mut ledger = Ledger::new(100);
        assert_eq!(ledger.offer(&at(99)), Offered::Known, "older than the sink");
        assert_eq!(ledger.offer(&at(100)), Offered::Waits);
        assert_eq!(ledger.offer(&at(100)), Offered::Known, "it waits");
        let mut ledger = restarted(&ledger);
        assert_eq!(next(&ledger, &[]), Some(&at(100)), "what waited waits");
        assert_eq!(ledger.offer(&at(100)), Offered::Known);
        ledger.done("another");
        assert_eq!(ledger.waiting(), 1);
        ledger.done(&at(100).id);
        let mut ledger = restarted(&ledger);
        assert_eq!(next(&ledger, &[]), None);
        assert_eq!(ledger.offer(&at(100)), Offered::Known, "it was told");
    }

    #[test]
    fn it_stays_small_and_forgets_nothing_that_it_does_not_count_as_told() {
        let mut ledger = Ledger::new(0);
        for time in 1..2_000 {
            assert_eq!(ledger.offer(&at(time)), Offered::Waits);
            ledger.done(&at(time).id);
        }
        assert!(ledger.told.len() <= MOST_TOLD);
        assert!((1..2_000).all(|time| ledger.offer(&at(time)) == Offered::Known));
        assert_eq!(ledger.offer(&at(2_000)), Offered::Waits);
    }

    #[test]
    fn nothing_is_told_twice_or_lost_while_a_namespace_waits_for_long() {
        let mut ledger = Ledger::new(0);
        let waits: Vec<Message> = (1..=100).map(|time| of("hangs", time)).collect();
        let told: Vec<Message> = (101..=2_000).map(at).collect();
        for message in &waits {
            ledger.offer(message);
        }
        for message in &told {
            ledger.offer(message);
            ledger.done(&message.id);
        }
        let mut ledger = restarted(&ledger);
        let kept = ledger.waiting();
        assert!((1..100).contains(&kept), "{kept}");
        assert!(told.iter().all(|message| ledger.offer(message) == Offered::Known));
        assert!(waits.iter().take(kept).all(|message| ledger.offer(message) == Offered::Known));
        assert!(waits.iter().skip(kept).all(|message| ledger.offer(message) == Offered::Waits));
        // One that is kept holds nothing up.
        let mut ledger = Ledger::new(0);
        for message in waits.iter().take(1).chain(&told) {
            ledger.offer(message);
        }
        told.iter().for_each(|message| ledger.done(&message.id));
        assert!(ledger.told.len() <= MOST_TOLD);
    }

    #[test]
    fn each_namespace_has_its_turn_its_order_and_its_room() {
        let mut ledger = Ledger::new(0);
        for message in [of("a", 1), of("a", 2), of("b", 3)] {
            ledger.offer(&message);
        }
        assert_eq!(next(&ledger, &[]), Some(&of("a", 1)));
        assert_eq!(next(&ledger, &["a"]), Some(&of("b", 3)));
        assert_eq!(next(&ledger, &["a", "b"]), None);
        ledger.done(&of("b", 3).id);
        assert_eq!(next(&ledger, &[]), Some(&of("a", 1)), "one that is under way waits on");

        let offered = (4..).map(|time| ledger.offer(&of("a", time)));
        let found = offered.take_while(|offered| *offered == Offered::Waits).count();
        assert_eq!(found, MOST_OF_A_NAMESPACE - 2);
        assert_eq!(ledger.offer(&of("b", 1_000)), Offered::Waits);
    }

    #[test]
    fn there_is_room_for_so_many_and_not_for_more() {
        let mut ledger = Ledger::new(0);
        let from_all_over = |time| of(&format!("team-{}", time % 100), time);
        let full = (1..=MOST_WAITING as i64 + 1).map(|time| ledger.offer(&from_all_over(time))).last();
        assert_eq!((full, ledger.waiting()), (Some(Offered::Full), MOST_WAITING));
        let kept = serde_json::to_string(&ledger.kept()).unwrap();
        assert!(kept.len() < MOST_KEPT + 100, "{}", kept.len());
        let mut ledger = restarted(&ledger);
        assert_eq!(
            ledger.offer(&from_all_over(MOST_WAITING as i64)),
            Offered::Waits,
            "what was not kept is found again"
        );
    }
}
