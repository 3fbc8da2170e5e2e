//! Ports that no other test has.
//!
//! A port is reserved by locking a file named after it for as long as the handle lives, so that parallel test
//! processes never get the same one and a server can be stopped and started on the port it had. Ports lie below
//! the range that the kernel gives to outgoing connections, so no connection takes one in between.

use anyhow::{Context, Result, bail};
use std::fs::{File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU16, Ordering};

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
            if lock.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
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
