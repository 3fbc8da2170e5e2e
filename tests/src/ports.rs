//! Ports that no other test has.
//!
//! A port is reserved by locking a file named after it for as long as the handle lives, so that parallel test
//! processes never get the same one and a server can be stopped and started on the port it had. Ports lie below
//! the range that the kernel gives to outgoing connections, so no connection takes one in between.

use anyhow::{Context, Result, bail};
use std::fs::{File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU16, Ordering};
use tokio::net::TcpSocket;

const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A port on 127.0.0.1, reserved until dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _lock: File,
}

impl Port {
    /// Reserves a port that nothing listens on.
    ///
    /// # Errors
    /// When the lock files cannot be written, or no port is free.
    pub fn reserve() -> Result<Self> {
        let uid = std::fs::metadata("/proc/self").context("reading /proc/self")?.uid();
        let dir = std::env::temp_dir().join(format!("statusbridge-ports-{uid}"));
        std::fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
        // Processes start at different places, so that they seldom meet.
        let start = (std::process::id() % u32::from(COUNT)) as u16;
        for _ in 0..COUNT {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            let number =
                FIRST + (u32::from(start) * 37 + u32::from(step)).rem_euclid(u32::from(COUNT)) as u16;
            let path = dir.join(number.to_string());
            let lock = OpenOptions::new()
                .create(true)
                .write(true)
                .truncate(false)
                .open(&path)
                .with_context(|| format!("opening {}", path.display()))?;
            if lock.try_lock().is_ok() && is_free(number) {
                return Ok(Self { number, _lock: lock });
            }
        }
        bail!("no port between {FIRST} and {} is free", FIRST + COUNT)
    }

    /// The port's number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// 127.0.0.1 and the port.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.number))
    }
}

/// Whether nothing listens on the port. The probe binds and does not listen: a process that another thread is
/// just starting has a copy of every socket until its exec, and the copy of a listener would keep the port taken.
fn is_free(number: u16) -> bool {
    let bind = || {
        let probe = TcpSocket::new_v4()?;
        probe.set_reuseaddr(true)?;
        probe.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, number)))
    };
    bind().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    use std::sync::atomic::AtomicBool;
    use std::thread::scope;

    #[test]
    fn a_port_can_be_listened_on_while_other_threads_start_processes() {
        let over = AtomicBool::new(false);
        scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        Command::new("true").process_group(0).status().unwrap();
                    }
                });
            }
            let taken: Vec<String> = (0..400)
                .filter_map(|_| {
                    let port = Port::reserve().unwrap();
                    TcpListener::bind(port.address()).err().map(|error| error.to_string())
                })
                .collect();
            over.store(true, Ordering::Relaxed);
            assert_eq!(taken, Vec::<String>::new());
        });
    }

    #[test]
    fn a_port_that_something_listens_on_is_not_free() {
        let port = Port::reserve().unwrap();
        let listener = TcpListener::bind(port.address()).unwrap();
        assert!(!is_free(port.number()));
        drop(listener);
        assert!(is_free(port.number()));
    }
}
