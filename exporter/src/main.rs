//! The exporter's command line.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::{Args, Parser, Subcommand};
use statusbridge_exporter::{
    catalog::SourceArgs,
    check::{self, CheckArgs},
    kstatus_command::{self, KstatusArgs},
    preset::{PRESETS, Preset},
    rbac,
    serve::{self, ServeArgs},
    source,
};

/// Publishes the apply and health state of a cluster's packages as low-cardinality metrics.
///
/// Without a command, serves metrics.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Serve,
}

const EXIT_CODES: &str = "Exit codes: 0 all is well; 1 something failed, or `check` found an object that is broken or \
cannot be evaluated, or `kstatus` could not read a file; 2 the command line or a source is wrong.";

#[derive(Subcommand)]
enum Command {
    /// Watch the packages of a cluster and serve metrics (the default).
    Serve(Box<Serve>),
    /// Print what /metrics would say about saved objects.
    Check(CheckArgs),
    /// Print what kstatus says about objects: one JSON line each, as they are read.
    ///
    /// A line has apiVersion, kind, namespace, name, status, reason and message. What cannot be read
    /// as an object has status Unknown and reason Malformed, and does not change the exit code.
    #[command(
        after_help = "Exit codes: 0 everything was read, whatever it says; 1 a file could not be read at all."
    )]
    Kstatus(KstatusArgs),
    /// Print the least ClusterRole that the sources need.
    Rbac {
        #[command(flatten)]
        sources: SourceArgs,
        /// Name of the ClusterRole.
        #[arg(long, default_value = "statusbridge-exporter")]
        name: String,
        /// A resource that a source finds by category, as xdatabases.example.org. May be given more
        /// than once.
        #[arg(long = "resource", value_name = "PLURAL.GROUP", value_delimiter = ',')]
        resources: Vec<String>,
        /// A resource that packages consist of, as deployments.apps, for leaf health. May be given more
        /// than once; the usual ones when left out.
        #[arg(long = "leaf-resource", value_name = "PLURAL.GROUP", value_delimiter = ',')]
        leaf_resources: Vec<String>,
        /// Add what `serve --authorize-scrapes` needs.
        #[arg(long)]
        authorize_scrapes: bool,
    },
    /// List the presets, or print one.
    Sources {
        /// The preset to print.
        name: Option<String>,
        /// Print the JSON Schema of the format instead.
        #[arg(long, conflicts_with = "name")]
        schema: bool,
    },
}

#[derive(Args)]
struct Serve {
    #[command(flatten)]
    sources: SourceArgs,
    #[command(flatten)]
    serve: ServeArgs,
}

/// What somebody has to correct before it can work.
const WRONG_USE: u8 = 2;

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(code) => code,
        // Somebody closed the pipe that we print to, such as `head`.
        Err(error)
            if error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe) =>
        {
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            let wrong_use = error.is::<statusbridge_exporter::source::SourceError>();
            ExitCode::from(if wrong_use { WRONG_USE } else { 1 })
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    match cli.command.unwrap_or_else(|| Command::Serve(Box::new(cli.serve))) {
        Command::Serve(args) => {
            drop(out);
            // One thread keeps up with thousands of updates a second, and does not pay for handing
            // each of them to another one.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(serve::run(args.serve, args.sources))?;
        }
        Command::Check(args) => {
            if !check::run(&args, &mut out, &mut io::stderr())? {
                return Ok(ExitCode::FAILURE);
            }
        }
        Command::Kstatus(args) => {
            if !kstatus_command::run(&args, &mut out, &mut io::stderr())? {
                return Ok(ExitCode::FAILURE);
            }
        }
        Command::Rbac { sources, name, resources, leaf_resources, authorize_scrapes } => {
            let role = rbac::cluster_role(&name, &sources.load()?, &resources, &leaf_resources);
            out.write_all(role.as_bytes())?;
            if authorize_scrapes {
                out.write_all(rbac::REVIEWS.as_bytes())?;
            }
        }
        Command::Sources { schema: true, .. } => {
            writeln!(out, "{:#}", source::schema())?;
        }
        Command::Sources { name: None, .. } => {
            let width = PRESETS.iter().map(|preset| preset.name.len()).max().unwrap_or_default();
            for preset in PRESETS {
                writeln!(out, "{:<width$}  {}", preset.name, preset.source()?.description)?;
            }
        }
        Command::Sources { name: Some(name), .. } => match Preset::find(&name) {
            Some(preset) => out.write_all(preset.yaml.as_bytes())?,
            None => {
                let known: Vec<&str> = PRESETS.iter().map(|p| p.name).collect();
                eprintln!("error: there is no preset `{name}`; there are {}", known.join(", "));
                return Ok(ExitCode::from(WRONG_USE));
            }
        },
    }
    Ok(ExitCode::SUCCESS)
}
