//! Apply state and health, ordered by severity so that `max` over packages is the worst of them.

use std::{fmt, str::FromStr};

/// A word that is none of a state's names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownState(
    /// The word that was given.
    pub String,
);

impl fmt::Display for UnknownState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no state", self.0)
    }
}

impl std::error::Error for UnknownState {}

macro_rules! state {
    ($(#[$doc:meta])* $name:ident { $($(#[doc = $meaning:literal])+ $variant:ident = $code:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[doc = $meaning])+ $variant = $code),+ }

        impl $name {
            /// Every state, mildest first.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The metric's value for this state.
            pub const fn code(self) -> u64 {
                self as u64
            }

            /// The state that a metric's value stands for; `None` when the contract has no such code.
            pub fn from_code(code: u64) -> Option<Self> {
                Self::ALL.iter().copied().find(|s| s.code() == code)
            }

            /// The state's name, as labels and people have it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant)),+ }
            }

            /// What the state means, in a sentence: for the reference.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => concat!($($meaning),+)),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $name {
            type Err = UnknownState;
            fn from_str(s: &str) -> Result<Self, UnknownState> {
                Self::ALL.iter().copied().find(|v| v.name() == s).ok_or_else(|| UnknownState(s.to_owned()))
            }
        }
    };
}

state! {
    /// How far the cluster has got with applying a package.
    ApplyState {
        /// The wanted revision is applied in full.
        Applied = 0,
        /// It is being applied.
        Applying = 1,
        /// It waits to be applied: for a dependency, a source, its turn.
        Pending = 2,
        /// A person told the controller to leave it alone.
        Paused = 3,
        /// It is being deleted.
        Deleting = 4,
        /// The object does not say, or says something that cannot be read.
        Unknown = 5,
        /// Applying failed; a controller may go on trying.
        Failed = 6,
    }
}

state! {
    /// Whether what was applied works, in the words of kstatus
    /// (kubernetes-sigs/cli-utils, `pkg/kstatus/status`).
    Health {
        /// Everything that was applied is as it should be.
        Current = 0,
        /// It is on its way there.
        InProgress = 1,
        /// It is being deleted.
        Terminating = 2,
        /// It is not there.
        NotFound = 3,
        /// Nobody checked, or the answer cannot be read.
        Unknown = 4,
        /// It does not work.
        Failed = 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_names_and_order_agree() {
        for (i, s) in ApplyState::ALL.iter().enumerate() {
            assert_eq!(s.code(), i as u64);
            assert_eq!(ApplyState::from_code(i as u64), Some(*s));
            assert_eq!(s.name().parse(), Ok(*s));
        }
        for (i, h) in Health::ALL.iter().enumerate() {
            assert_eq!(h.code(), i as u64);
            assert_eq!(Health::from_code(i as u64), Some(*h));
            assert_eq!(h.name().parse(), Ok(*h));
        }
        assert!(ApplyState::ALL.is_sorted() && Health::ALL.is_sorted());
        assert_eq!(ApplyState::from_code(7), None);
        assert_eq!(Health::from_code(6), None);
        assert_eq!("applied".parse::<ApplyState>(), Err(UnknownState("applied".into())));
    }

    #[test]
    fn the_worst_state_is_the_largest() {
        assert!(ApplyState::Failed > ApplyState::Unknown && ApplyState::Unknown > ApplyState::Applied);
        assert!(Health::Failed > Health::Unknown && Health::Unknown > Health::Current);
    }
}
