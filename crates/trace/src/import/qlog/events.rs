//! The events of a qlog, as far as they matter here; what has another shape than expected counts
//! as not there, for other events have fields of the same names.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};

/// No datagram is larger; a size that says more is taken as that.
const MOST_PACKET_BYTES: f64 = 65_535.0;

/// What happened.
#[derive(Clone, Copy, Debug)]
pub enum What {
    Metrics {
        cwnd_bytes: Option<f64>,
        ssthresh_bytes: Option<f64>,
        srtt_ms: Option<f64>,
    },
    Sent {
        number: u64,
        size_bytes: u32,
    },
    Lost {
        number: u64,
        size_bytes: u32,
    },
}

/// An event as it stands in the file.
#[derive(Default, Deserialize)]
pub struct RawEvent {
    #[serde(default)]
    pub time: Number,
    #[serde(default)]
    pub name: Text,
    #[serde(default)]
    pub group_id: Text,
    #[serde(default)]
    pub data: Object<Data>,
}

#[derive(Default, Deserialize)]
pub struct Data {
    #[serde(default)]
    congestion_window: Number,
    #[serde(default)]
    ssthresh: Number,
    #[serde(default)]
    smoothed_rtt: Number,
    #[serde(default)]
    max_datagram_size: Number,
    #[serde(default)]
    packet_size: Number,
    #[serde(default)]
    packet_type: Text,
    #[serde(default)]
    header: Object<Header>,
    #[serde(default)]
    raw: Object<Raw>,
}

#[derive(Default, Deserialize)]
struct Header {
    #[serde(default)]
    packet_type: Text,
    #[serde(default)]
    packet_number: Number,
    #[serde(default)]
    packet_size: Number,
}

#[derive(Default, Deserialize)]
struct Raw {
    #[serde(default)]
    length: Number,
}

impl RawEvent {
    /// What it says of application data, and the size of a datagram if it says that.
    pub fn what(&self) -> (Option<What>, Option<u32>) {
        let data = &self.data.0;
        let name = self.name.0.rsplit(':').next().unwrap_or("");
        let datagram_bytes = data.max_datagram_size.0.map(|bytes| bytes as u32);
        let what = match name {
            "metrics_updated" | "recovery_metrics_updated" => {
                let fields = [
                    data.congestion_window.0,
                    data.ssthresh.0,
                    data.smoothed_rtt.0,
                ];
                fields.iter().any(Option::is_some).then_some(What::Metrics {
                    cwnd_bytes: fields[0],
                    ssthresh_bytes: fields[1],
                    srtt_ms: fields[2],
                })
            }
            "packet_sent" | "packet_lost" => {
                let header = &data.header.0;
                let kind = match header.packet_type.0.as_str() {
                    "" => data.packet_type.0.as_str(),
                    kind => kind,
                };
                // packets of the handshake have numbers of their own
                let application = matches!(kind, "" | "1RTT" | "1rtt" | "0RTT" | "0rtt");
                let size = data
                    .raw
                    .0
                    .length
                    .0
                    .or(header.packet_size.0)
                    .or(data.packet_size.0);
                let size_bytes = size.unwrap_or(0.0).clamp(0.0, MOST_PACKET_BYTES) as u32;
                let number = header.packet_number.0.filter(|_| application);
                number.map(|number| match name {
                    "packet_sent" => What::Sent {
                        number: number as u64,
                        size_bytes,
                    },
                    _ => What::Lost {
                        number: number as u64,
                        size_bytes,
                    },
                })
            }
            _ => None,
        };
        (what, datagram_bytes)
    }
}

/// A number, or a text that is one, of at least 0.
#[derive(Clone, Copy, Default)]
pub struct Number(pub Option<f64>);

/// A text.
#[derive(Clone, Default)]
pub struct Text(pub String);

/// An object; with nothing in it if it is something else.
#[derive(Default)]
pub struct Object<T>(pub T);

struct Loose<T>(PhantomData<T>);

/// Gives `default` for what is no `$($visit)*`.
macro_rules! loosely {
    ($kind:ty, $what:literal, { $($visit:item)* }) => {
        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(Loose(PhantomData::<$kind>))
            }
        }

        impl<'de> Visitor<'de> for Loose<$kind> {
            type Value = $kind;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($what)
            }

            fn visit_bool<E: de::Error>(self, _: bool) -> Result<$kind, E> {
                Ok(Default::default())
            }

            fn visit_unit<E: de::Error>(self) -> Result<$kind, E> {
                Ok(Default::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<$kind, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Default::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<$kind, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Default::default())
            }

            $($visit)*
        }
    };
}

loosely!(Number, "a number", {
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Number, E> {
        Ok(Number(Some(value).filter(|value| *value >= 0.0)))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Number, E> {
        Ok(Number(Some(value as f64)))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Number, E> {
        Ok(Number(Some(value as f64).filter(|value| *value >= 0.0)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Number, E> {
        let value = text
            .parse()
            .ok()
            .filter(|v: &f64| v.is_finite() && *v >= 0.0);
        Ok(Number(value))
    }
});

loosely!(Text, "a text", {
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
        Ok(Text(text.to_string()))
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Text, E> {
        Ok(Text::default())
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<Text, E> {
        Ok(Text::default())
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Text, E> {
        Ok(Text::default())
    }
});

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de> + Default> Visitor<'de> for Any<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_bool<E: de::Error>(self, _: bool) -> Result<Object<T>, E> {
                Ok(Object(T::default()))
            }

            fn visit_unit<E: de::Error>(self) -> Result<Object<T>, E> {
                Ok(Object(T::default()))
            }

            fn visit_f64<E: de::Error>(self, _: f64) -> Result<Object<T>, E> {
                Ok(Object(T::default()))
            }

            fn visit_u64<E: de::Error>(self, _: u64) -> Result<Object<T>, E> {
                Ok(Object(T::default()))
            }

            fn visit_i64<E: de::Error>(self, _: i64) -> Result<Object<T>, E> {
                Ok(Object(T::default()))
            }

            fn visit_str<E: de::Error>(self, _: &str) -> Result<Object<T>, E> {
                Ok(Object(T::default()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Object<T>, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Object(T::default()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }

        deserializer.deserialize_any(Any(PhantomData))
    }
}
