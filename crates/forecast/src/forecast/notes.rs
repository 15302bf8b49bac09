//! What was odd about the records that a forecast rests on.

use serde::{Serialize, Serializer};

/// One oddity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u16)]
pub enum Note {
    /// No loss was seen: the forecast rests on growth, on means of the past, and on the bound that follows
    /// from the number of packets without a loss.
    NoLoss,
    /// One loss was seen: how often they come is known to a factor of ten.
    OneLoss,
    /// All losses ended slow starts: how often they come in avoidance is not known.
    SlowStartLossesOnly,
    /// The window does not grow: the application or the receive window holds it.
    Held,
    /// After an idle time the window began anew; that was not taken for a loss.
    IdleRestart,
    /// Time went back, or leapt by more than an hour: the state of the flow and its samples begin there;
    /// losses and experts' errors from before are kept.
    ClockStep,
    /// The sequence number went back: as after a clock step.
    CounterReset,
    /// The path changed: what was learned before counts little since then.
    PathChanged,
    /// Windows jump to and fro: these are the records of several flows, and the forecast is of none.
    MixedFlows,
}

const ALL: [Note; 9] = [
    Note::NoLoss,
    Note::OneLoss,
    Note::SlowStartLossesOnly,
    Note::Held,
    Note::IdleRestart,
    Note::ClockStep,
    Note::CounterReset,
    Note::PathChanged,
    Note::MixedFlows,
];

/// A set of [`Note`]s; in JSON a list of their names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Notes(u16);

impl Notes {
    /// Adds one.
    pub fn add(&mut self, note: Note) {
        self.0 |= 1 << note as u16;
    }

    /// The same with one more, if it holds.
    #[must_use]
    pub fn with(mut self, note: Note, holds: bool) -> Self {
        if holds {
            self.add(note);
        }
        self
    }

    /// Whether it is one of them.
    pub fn contains(self, note: Note) -> bool {
        self.0 & (1 << note as u16) != 0
    }

    /// All of them.
    pub fn iter(self) -> impl Iterator<Item = Note> {
        ALL.into_iter().filter(move |&note| self.contains(note))
    }
}

impl Serialize for Notes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}
