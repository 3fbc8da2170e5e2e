//! Bodies of pushes from arbitrary bytes. `cargo test` reads the corpora beside this file, and some bytes at random;
//! `make fuzz` looks for more.

use super::*;

#[test]
fn no_body_unpacks_to_more_than_is_allowed() {
    const MOST: usize = 1 << 16;
    bolero::check!(name = "body").for_each(|bytes: &[u8]| {
        for gzip in [false, true] {
            let chunks = bytes.chunks(100).map(Bytes::copy_from_slice).collect();
            let unpacked = Arrived { chunks, _room: Vec::new() }.unpack(gzip, MOST);
            assert!(unpacked.is_ok_and(|text| text.len() <= MOST) || gzip || bytes.len() > MOST);
        }
    });
}
