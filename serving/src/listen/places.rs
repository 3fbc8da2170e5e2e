//! What each client has under way of something that costs much, so that none keeps others from it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

use http::Request;

use crate::listen::peer::Peer;

type Taken = Arc<Mutex<HashMap<Peer, usize>>>;

/// Places of which one client has only so many at a time.
#[derive(Debug)]
pub struct Places {
    most: usize,
    taken: Taken,
}

impl Places {
    /// `most` for each client.
    pub fn new(most: usize) -> Self {
        Self { most, taken: Taken::default() }
    }

    /// One for the client that this request is from, unless it has all of its own.
    pub fn take<B>(&self, request: &Request<B>) -> Option<Place> {
        self.take_for(Peer::of(request))
    }

    pub(crate) fn take_for(&self, peer: Peer) -> Option<Place> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.entry(peer).or_default();
        (*count < self.most).then(|| {
            *count += 1;
            Place { peer, taken: self.taken.clone() }
        })
    }
}

/// Is given back when it is dropped.
#[derive(Debug)]
pub struct Place {
    peer: Peer,
    taken: Taken,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut count) = taken.entry(self.peer) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_its_places_and_takes_none_of_anothers() {
        let peer = |last: u8| Peer::from(std::net::IpAddr::from([10, 0, 0, last]));
        let places = Places::new(2);
        let (one, two) = (places.take_for(peer(1)), places.take_for(peer(1)));
        assert!(one.is_some() && two.is_some() && places.take_for(peer(1)).is_none());
        assert!(places.take_for(peer(2)).is_some());
        drop(one);
        assert!(places.take_for(peer(1)).is_some());
        drop(two);
        assert!(places.taken.lock().unwrap().is_empty());
    }
}
