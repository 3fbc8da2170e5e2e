//! The demo: a package rolled out in two waves, on real servers, told as a short story.
//!
//! Run it with `make demo`; `make demo KEEP=1` leaves everything running afterwards. It ends with status 0 only if
//! every step was seen, and nothing that it started outlives it.

#![allow(clippy::indexing_slicing, clippy::string_slice)] // what cannot be ends it

mod narrate;
mod package;
mod story;
mod world;

use anyhow::{Context, Result};
use narrate::say;
use statusbridge_tests::Rig;
use std::process::ExitCode;
use std::time::Instant;
use tokio::signal::unix::{Signal, SignalKind, signal};
use world::World;

fn main() -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    runtime.block_on(async {
        match run().await {
            Ok(code) => code,
            Err(error) => {
                eprintln!("\nerror: {error:#}");
                ExitCode::FAILURE
            }
        }
    })
}

/// What a shell says of a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

async fn run() -> Result<ExitCode> {
    let mut stop = Stop::new()?;
    let started = Instant::now();
    let rig = Rig::new("demo")?;
    let mut world = None;
    let seen = tokio::select! {
        seen = demo(&rig, &mut world) => seen,
        () = stop.asked() => {
            say("\nInterrupted: stopping every server and removing its data.");
            return Ok(ExitCode::from(INTERRUPTED));
        }
    };
    if let Err(error) = seen {
        rig.mark_failed();
        narrate::failure(&error);
        if let Some(world) = &world {
            world.print_last_state().await;
        }
        world::print_logs(&rig);
        return Ok(ExitCode::FAILURE);
    }
    say(&format!("Every step was seen, in {} s.", started.elapsed().as_secs()));
    if let (Some(world), true) = (&world, keep()) {
        world.print_how_to_look_around();
        say("\nEverything runs until Ctrl-C.");
        stop.asked().await;
        say("\nStopping every server and removing its data.");
    } else {
        say("`make demo KEEP=1` leaves everything running, to look around.");
    }
    Ok(ExitCode::SUCCESS)
}

async fn demo(rig: &Rig, world: &mut Option<World>) -> Result<()> {
    narrate::title();
    let world = world.insert(World::start(rig).await.context("starting the servers")?);
    world.print_addresses();
    story::tell(world).await
}

fn keep() -> bool {
    std::env::var("KEEP").is_ok_and(|v| !matches!(v.as_str(), "" | "0" | "no" | "false"))
}

/// Ctrl-C, and what a supervisor sends instead.
struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    fn new() -> Result<Self> {
        let on = |kind| signal(kind).context("listening for signals");
        Ok(Self { interrupt: on(SignalKind::interrupt())?, terminate: on(SignalKind::terminate())? })
    }

    async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
