//! The two ways over a path and its two ends.

/// Which way something goes over a path, or over a route of several: a packet, or the data of a flow.
///
/// [`Direction`](crate::Direction) is what a path does one way. Whether a packet is data of its flow or goes
/// against it is another question: that depends on which way the flow heads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Heading {
    /// From the near end of the first link to the far end of the last.
    #[default]
    Forward,
    /// The other way.
    Reverse,
}

/// An end of a path: a place, whereas a [`Heading`] is a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Where it begins.
    Near,
    /// Where what goes forward comes out.
    Far,
}

impl Heading {
    /// The other way.
    #[inline]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Forward => Self::Reverse,
            Self::Reverse => Self::Forward,
        }
    }

    /// Which way what leaves `end` goes.
    #[inline]
    pub const fn from_end(end: End) -> Self {
        match end {
            End::Near => Self::Forward,
            End::Far => Self::Reverse,
        }
    }
}

impl End {
    /// Where what has this heading comes from.
    #[inline]
    pub const fn source_of(heading: Heading) -> Self {
        match heading {
            Heading::Forward => Self::Near,
            Heading::Reverse => Self::Far,
        }
    }

    /// The other one.
    #[inline]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Near => Self::Far,
            Self::Far => Self::Near,
        }
    }
}
