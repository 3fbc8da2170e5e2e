//! The wall clock of one program, which a test sets while it runs.

use crate::Rig;
use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Adds the number of seconds in a file to the wall clock of whichever program it is loaded into.
const SHIFT: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
static volatile long *shift;
__attribute__((constructor)) static void find(void) {
    void *page = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, open(getenv("SHIFT_FILE"), O_RDONLY), 0);
    if (page == MAP_FAILED) abort();
    shift = page;
}
int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *)) dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, now);
    if (id == CLOCK_REALTIME && shift) now->tv_sec += *shift;
    return result;
}
"#;

/// How far the wall clock of a program is ahead of the machine's.
#[derive(Debug)]
pub struct WallClock(File);

impl WallClock {
    /// One that is right, of the program of ours that is started under this name in the rig afterwards.
    ///
    /// # Errors
    /// When there is no C compiler, or a file cannot be written.
    pub fn of(rig: &Rig, name: &str) -> Result<Self> {
        let (source, library) = (rig.dir().join("shift.c"), library(rig));
        if !library.exists() {
            std::fs::write(&source, SHIFT)?;
            let compiler =
                Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
            ensure!(compiler.context("running cc")?.success(), "cc failed");
        }
        let clock = Self(File::create(path(rig, name))?);
        clock.set(0)?;
        Ok(clock)
    }

    /// Sets it so many seconds ahead of the machine's, or behind it.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn set(&self, seconds: i64) -> Result<()> {
        Ok(self.0.write_all_at(&seconds.to_ne_bytes(), 0)?)
    }
}

/// What the environment of a program says where a test has its clock.
///
/// # Errors
/// When the program is linked statically: nothing can be loaded into that, and its clock would stay right.
pub(crate) fn env(rig: &Rig, name: &str, program: &Path) -> Result<Vec<(&'static str, OsString)>> {
    let path = path(rig, name);
    if !path.exists() {
        return Ok(Vec::new());
    }
    // The path of what loads a dynamic program stands right behind the headers.
    let mut head = [0; 4096];
    File::open(program)?.read_exact_at(&mut head, 0)?;
    ensure!(
        head.windows(4).any(|bytes| bytes == b"/ld-"),
        "{} is linked statically, so a test cannot set its clock: build it with `cargo build`",
        program.display()
    );
    Ok(vec![("LD_PRELOAD", library(rig).into()), ("SHIFT_FILE", path.into())])
}

fn library(rig: &Rig) -> PathBuf {
    rig.dir().join("shift.so")
}

fn path(rig: &Rig, name: &str) -> PathBuf {
    rig.dir().join(format!("{name}.shift"))
}
