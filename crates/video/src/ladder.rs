//! The versions of a video.

use thiserror::Error;

/// Versions of one video, by ascending bitrate, and its segments, which all take equally long to play.
#[derive(Clone, Debug, PartialEq)]
pub struct Ladder {
    segment_s: f64,
    count: usize,
    bitrates_bps: Vec<f64>,
    /// Bytes by version and segment; empty where segments have the size that the bitrate says.
    sizes: Vec<Vec<u64>>,
}

/// A ladder is not valid.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum LadderError {
    /// Segments last no time.
    #[error("got segments of {0} s; expected more than 0 and at most an hour")]
    Segment(f64),
    /// There is nothing to play.
    #[error(
        "got {bitrates} bitrates and {segments} segments; expected at least one of each, and at most 64 bitrates"
    )]
    Empty {
        /// Versions.
        bitrates: usize,
        /// Segments.
        segments: usize,
    },
    /// Bitrates are not above 0 and ascending.
    #[error(
        "got a bitrate of {got} bit/s after {before}; expected bitrates to ascend from above 0"
    )]
    Order {
        /// The one that is wrong.
        got: f64,
        /// The one before, 0 for the first.
        before: f64,
    },
    /// There are not as many sizes as segments and versions.
    #[error("got sizes of {got} in version {version}; expected those of {expected}")]
    Sizes {
        /// Which version, from 0.
        version: usize,
        /// How many there are.
        got: usize,
        /// How many there should be.
        expected: usize,
    },
}

impl Ladder {
    /// `count` segments of `segment_s` seconds, of the sizes that the bitrates say.
    ///
    /// # Errors
    /// [`LadderError`].
    pub fn constant(
        segment_s: f64,
        count: usize,
        bitrates_bps: Vec<f64>,
    ) -> Result<Self, LadderError> {
        if !(segment_s > 0.0 && segment_s <= 3600.0) {
            return Err(LadderError::Segment(segment_s));
        }
        if bitrates_bps.is_empty() || bitrates_bps.len() > 64 || count == 0 {
            return Err(LadderError::Empty {
                bitrates: bitrates_bps.len(),
                segments: count,
            });
        }
        let mut before = 0.0;
        for &got in &bitrates_bps {
            if !(got > before && got.is_finite()) {
                return Err(LadderError::Order { got, before });
            }
            before = got;
        }
        Ok(Self {
            segment_s,
            count,
            bitrates_bps,
            sizes: Vec::new(),
        })
    }

    /// The same with sizes in bytes, by version and segment.
    ///
    /// # Errors
    /// [`LadderError::Sizes`].
    pub fn with_sizes(self, sizes: Vec<Vec<u64>>) -> Result<Self, LadderError> {
        if sizes.len() != self.bitrates_bps.len() {
            return Err(LadderError::Sizes {
                version: sizes.len().min(self.bitrates_bps.len()),
                got: 0,
                expected: self.count,
            });
        }
        for (version, those) in sizes.iter().enumerate() {
            if those.len() != self.count {
                return Err(LadderError::Sizes {
                    version,
                    got: those.len(),
                    expected: self.count,
                });
            }
        }
        Ok(Self { sizes, ..self })
    }

    /// How long a segment plays, in seconds.
    pub const fn segment_s(&self) -> f64 {
        self.segment_s
    }

    /// Segments.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Bitrates of the versions, ascending, in bits a second.
    pub fn bitrates_bps(&self) -> &[f64] {
        &self.bitrates_bps
    }

    /// Sizes by version and segment, in bytes; empty where the bitrates say them.
    pub fn sizes(&self) -> &[Vec<u64>] {
        &self.sizes
    }

    /// The size of a segment in bytes.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // bitrates are above 0, segments at most an hour
    pub fn bytes(&self, version: usize, segment: usize) -> u64 {
        match self.sizes.get(version) {
            Some(sizes) => sizes[segment.min(self.count - 1)],
            None => ((self.bitrates_bps[version] * self.segment_s / 8.0).round() as u64).max(1),
        }
    }

    /// The size of a segment in bits.
    pub fn bits(&self, version: usize, segment: usize) -> f64 {
        8.0 * self.bytes(version, segment) as f64
    }

    /// The best version of which `fits` says so, the least one otherwise.
    pub fn best(&self, fits: impl Fn(usize) -> bool) -> usize {
        (0..self.bitrates_bps.len())
            .rev()
            .find(|version| fits(*version))
            .unwrap_or(0)
    }
}
