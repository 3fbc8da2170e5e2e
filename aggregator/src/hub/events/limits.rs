//! How many Events may be written: so many of one object, which may flap, and so many a second in all. Token buckets,
//! with the time passed in.

use std::collections::BTreeMap;
use std::time::Duration;

/// Of one object: what client-go allows, too.
const OF_AN_OBJECT: Rate = Rate { burst: 25.0, a_second: 1.0 / 300.0 };
/// Of all objects together.
const IN_ALL: Rate = Rate { burst: 100.0, a_second: 10.0 };
/// Objects that are remembered at most.
const MOST_OBJECTS: usize = 4096;

#[derive(Debug, Clone, Copy)]
struct Rate {
    burst: f64,
    a_second: f64,
}

/// Tokens that were left at a time.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    at: Duration,
}

impl Bucket {
    fn level(self, rate: Rate, now: Duration) -> f64 {
        (self.left + now.saturating_sub(self.at).as_secs_f64() * rate.a_second).min(rate.burst)
    }
}

/// Who has written how much.
#[derive(Debug)]
pub(super) struct Limits {
    all: Bucket,
    objects: BTreeMap<String, Bucket>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { all: Bucket { left: IN_ALL.burst, at: Duration::ZERO }, objects: BTreeMap::new() }
    }
}

impl Limits {
    /// How long to wait before an Event of the object with this UID is written; `None` when the object has had too many.
    pub(super) fn admit(&mut self, uid: &str, now: Duration) -> Option<Duration> {
        if self.objects.len() >= MOST_OBJECTS {
            self.objects.retain(|_, bucket| bucket.level(OF_AN_OBJECT, now) < OF_AN_OBJECT.burst);
        }
        if self.objects.len() >= MOST_OBJECTS && !self.objects.contains_key(uid) {
            self.objects.pop_first();
        }
        let full = Bucket { left: OF_AN_OBJECT.burst, at: now };
        let bucket = self.objects.entry(uid.to_owned()).or_insert(full);
        let level = bucket.level(OF_AN_OBJECT, now);
        if level < 1.0 {
            return None;
        }
        *bucket = Bucket { left: level - 1.0, at: now };
        let level = self.all.level(IN_ALL, now);
        self.all = Bucket { left: level - 1.0, at: now };
        Some(Duration::from_secs_f64((1.0 - level).max(0.0) / IN_ALL.a_second))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_object_that_flaps_is_told_of_now_and_then_and_others_as_before() {
        let mut limits = Limits::default();
        let told = |limits: &mut Limits, uid: &str, now| {
            (0..100).filter(|_| limits.admit(uid, now).is_some()).count()
        };
        assert_eq!(told(&mut limits, "flaps", at(0)), 25);
        assert_eq!(told(&mut limits, "flaps", at(299)), 0);
        assert_eq!(told(&mut limits, "flaps", at(300)), 1);
        assert_eq!(told(&mut limits, "other", at(300)), 25);
    }

    #[test]
    fn all_together_wait_for_their_turn() {
        let mut limits = Limits::default();
        let mut wait = |n: usize, now| limits.admit(&format!("u{n}"), now).unwrap();
        assert!((0..100).all(|n| wait(n, at(0)).is_zero()));
        assert_eq!(wait(100, at(0)), Duration::from_millis(100));
        assert_eq!(wait(101, at(0)), Duration::from_millis(200));
        assert!(wait(102, at(10)).is_zero());
    }

    #[test]
    fn no_more_objects_are_remembered_than_there_is_room_for() {
        let mut limits = Limits::default();
        for n in 0..2 * MOST_OBJECTS {
            limits.admit(&format!("u{n}"), at(0));
        }
        assert!(limits.objects.len() <= MOST_OBJECTS);
        limits.admit("late", at(10_000));
        assert_eq!(limits.objects.len(), 1, "whoever may write as much as ever is forgotten");
    }
}
