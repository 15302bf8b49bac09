//! The schemes of QUIC.

/// A congestion controller of QUIC, as the emulator has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuicScheme {
    /// CUBIC.
    Cubic,
    /// NewReno.
    Reno,
    /// BBR version 3.
    Bbr3,
}

impl QuicScheme {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Cubic, Self::Reno, Self::Bbr3];

    /// What the names of all, and of no other schemes, begin with.
    pub const PREFIX: &str = "quic-";

    /// Its name among all schemes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cubic => "quic-cubic",
            Self::Reno => "quic-reno",
            Self::Bbr3 => "quic-bbr3",
        }
    }

    /// The scheme with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scheme| scheme.name() == name)
    }

    /// Checks a name that begins like those of QUIC's schemes.
    ///
    /// # Errors
    /// No scheme has the name. The error states what was got and which schemes exist.
    pub fn check(name: &str) -> Result<(), String> {
        if !name.starts_with(Self::PREFIX) || Self::by_name(name).is_some() {
            return Ok(());
        }
        let names = Self::ALL.map(Self::name).join(", ");
        Err(format!(
            "the scheme {name:?}, expected one of QUIC's: {names}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_are_told_of_them() {
        for scheme in QuicScheme::ALL {
            assert_eq!(QuicScheme::by_name(scheme.name()), Some(scheme));
            assert_eq!(QuicScheme::check(scheme.name()), Ok(()));
        }
        assert_eq!(QuicScheme::check("cubic"), Ok(()));
        let error = QuicScheme::check("quic-vegas").unwrap_err();
        assert!(error.contains("\"quic-vegas\"") && error.contains("quic-cubic, quic-reno"));
    }
}
