//! The table.

/// What has come and gone in the exporter's cluster.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GoneInCluster {
    pub(crate) packages: u64,
    pub(crate) namespaces: u64,
    pub(crate) revisions: u64,
    pub(crate) reasons: u64,
    pub(crate) resources: u64,
}

/// What has come and gone in the fleet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GoneInFleet {
    pub(crate) clusters: u64,
    pub(crate) packages: u64,
    pub(crate) revisions: u64,
    pub(crate) reasons: u64,
    pub(crate) objects: u64,
    /// Of the objects, those whose last generation had an answer when they were deleted.
    pub(crate) judged: u64,
}

/// One look at both processes: exporter and aggregator. Memory in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    /// Which part of the time had passed.
    pub(crate) at: f64,
    pub(crate) resident: [u64; 2],
    /// The most since the process began.
    pub(crate) peak: [u64; 2],
    pub(crate) gone: (GoneInCluster, GoneInFleet),
}

/// All that was measured.
pub(crate) struct Report {
    pub(crate) minutes: u32,
    pub(crate) machine: String,
    pub(crate) readings: Vec<Reading>,
}

const NAMES: [&str; 2] = ["statusbridge-exporter", "statusbridge-aggregator"];
/// How much more memory may be resident in the last third of the time than in the second: caches fill in the first.
const MOST_MORE: f64 = 0.05;

impl Report {
    /// The most that was resident from one part of the time to another.
    fn most(&self, process: usize, from: f64, to: f64) -> u64 {
        let within = self.readings.iter().filter(|it| from < it.at && it.at <= to + 1e-9);
        within.map(|it| it.resident[process]).max().unwrap_or_default()
    }

    /// The most in the second third of the time, and in the last.
    fn thirds(&self, process: usize) -> [u64; 2] {
        [self.most(process, 1.0 / 3.0, 2.0 / 3.0), self.most(process, 2.0 / 3.0, 1.0)]
    }

    /// By which part more was resident in the last third.
    fn more(&self, process: usize) -> f64 {
        let [second, last] = self.thirds(process);
        last as f64 / second as f64 - 1.0
    }

    /// Whether neither process grew.
    pub(crate) fn is_flat(&self) -> bool {
        (0..NAMES.len()).all(|process| self.more(process) <= MOST_MORE)
    }

    pub(crate) fn render(&self) -> String {
        let mut text = format!("{} minutes. {}.\n\n", self.minutes, self.machine);
        text += "| | highest of the second third | highest of the last third | more | aim | met |\n|---|---|---|---|---|---|\n";
        for (process, name) in NAMES.into_iter().enumerate() {
            let [second, last] = self.thirds(process).map(mega);
            let met = if self.more(process) <= MOST_MORE { "yes" } else { "**no**" };
            let (more, most) = (self.more(process) * 100.0, MOST_MORE * 100.0);
            text += &format!(
                "| {name}: resident | {second} MB | {last} MB | {more:+.1} % | at most {most:.0} % | {met} |\n"
            );
        }
        text += "\nThe exporter, and how many of each had come and gone in its cluster:\n\n\
                 | minutes | resident at most | peak since the start | packages | namespaces | revisions | reasons | resources |\n\
                 |---|---|---|---|---|---|---|---|\n";
        self.rows(&mut text, 0, |it| {
            let GoneInCluster { packages, namespaces, revisions, reasons, resources } = it.gone.0;
            vec![packages, namespaces, revisions, reasons, resources]
        });
        text += "\nThe aggregator, and how many of each had come and gone in the fleet:\n\n\
                 | minutes | resident at most | peak since the start | clusters | packages | revisions | reasons | \
                 FleetPackages and RolloutGates | of them judged |\n|---|---|---|---|---|---|---|---|---|\n";
        self.rows(&mut text, 1, |it| {
            let GoneInFleet { clusters, packages, revisions, reasons, objects, judged } = it.gone.1;
            vec![clusters, packages, revisions, reasons, objects, judged]
        });
        text
    }

    /// A row for each tenth of the time.
    fn rows(&self, text: &mut String, process: usize, gone: impl Fn(&Reading) -> Vec<u64>) {
        for tenth in 1..=10 {
            let [from, to] = [tenth - 1, tenth].map(|n| f64::from(n) / 10.0);
            let Some(last) = self.readings.iter().rfind(|it| it.at <= to + 1e-9) else { continue };
            let cells: Vec<String> = gone(last).into_iter().map(grouped).collect();
            let minutes = f64::from(self.minutes) * to;
            let (most, peak) = (mega(self.most(process, from, to)), mega(last.peak[process]));
            *text += &format!("| {minutes:.1} | {most} MB | {peak} MB | {} |\n", cells.join(" | "));
        }
    }
}

fn mega(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

/// With a comma before each three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.char_indices() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
