//! How the processors spent a window, by part of the engine: the system's own account of idle time,
//! of the kernel and of others, and samples for what is left.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{
    profile::{Part, Profile, Profiler},
    run::Run,
    usage::{Split, Usage},
};

/// The time of one run in which this process was sampled.
#[derive(Debug, Clone, Default)]
pub struct Times {
    /// Idle, kernel, program, others: shares of what all processors could have given.
    pub split: Split,
    /// The samples.
    pub profile: Profile,
    /// Committed transactions per second of this run, to be compared with those of runs that nobody
    /// sampled.
    pub tps: f64,
}

impl Times {
    /// What a run in which so much was sampled says.
    pub fn of(run: &Run, profile: Profile, cores: usize) -> Times {
        let usage: Option<Usage> = run.usage;
        Times {
            split: usage.map_or(Split::default(), |usage| {
                Split::of(usage, run.window, cores)
            }),
            profile,
            tps: run.tps(),
        }
    }

    /// What this part took in the program, as a share of all processors' time.
    pub fn program(&self, part: Part) -> f64 {
        self.split.user * self.profile.share(part)
    }

    /// What the kernel took for this part. Where nothing was sampled in it, it is nobody's.
    pub fn kernel(&self, part: Part) -> f64 {
        let nobody = Part::ALL
            .iter()
            .all(|&part| self.profile.share_of_kernel(part) == 0.0);
        let share = match (nobody, part) {
            (true, Part::Others) => 1.0,
            _ => self.profile.share_of_kernel(part),
        };
        self.split.kernel * share
    }

    /// The same for programs: shares of all processors' time, and what they were made of.
    pub fn to_json(&self, undisturbed: f64) -> Value {
        let parts = |of: &dyn Fn(Part) -> f64| -> Map<String, Value> {
            let parts = Part::ALL.into_iter();
            parts
                .map(|part| (part.to_string(), json!(rounded(of(part)))))
                .collect()
        };
        json!({
            "idle": rounded(self.split.idle),
            "others": rounded(self.split.others),
            "kernel": rounded(self.split.kernel),
            "program": parts(&|part| self.program(part)),
            "kernel_for": parts(&|part| self.kernel(part)),
            "samples": self.profile.samples(),
            "uncertainty": rounded(self.profile.uncertainty()),
            "tps_sampled": rounded(self.tps),
            "tps_sampled_ratio": (undisturbed > 0.0).then(|| rounded(self.tps / undisturbed)),
        })
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

/// Samples the window of a run, and nothing before or after it.
#[derive(Debug, Default)]
pub struct Watch {
    begun: Option<Result<Profiler, String>>,
    ended: Option<Result<Profile, String>>,
}

impl Watch {
    /// To be called as the run goes on, with the time since its clients were let go, and at the
    /// end. The window begins after `ramp`.
    pub fn at(&mut self, elapsed: Duration, ramp: Duration, window: Duration) {
        let over = elapsed >= ramp + window;
        if elapsed >= ramp && !over && self.begun.is_none() {
            let begun = Profiler::start().map_err(|error| error.to_string());
            self.begun = Some(begun);
        }
        if over && self.ended.is_none() {
            let begun = self.begun.take();
            let profile = begun.map(|begun| begun.map(Profiler::stop));
            self.ended = Some(profile.unwrap_or_else(|| Ok(Profile::default())));
        }
    }

    /// What was sampled.
    ///
    /// # Errors
    ///
    /// Why nothing was.
    pub fn profile(self) -> Result<Profile, String> {
        self.ended.unwrap_or_else(|| Ok(Profile::default()))
    }
}
