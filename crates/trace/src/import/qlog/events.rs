//! The relevant events of a qlog. A field of an unexpected shape counts as missing, because other
//! events have fields with the same names.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};

/// Datagrams are at most this large; larger sizes are clamped to it.
const MOST_PACKET_BYTES: f64 = 65_535.0;

/// The meaning of an event.
#[derive(Clone, Copy, Debug)]
pub enum What {
    Metrics {
        cwnd_bytes: Option<f64>,
        ssthresh_bytes: Option<f64>,
        /// In the trace's unit of time.
        srtt: Option<f64>,
        least_rtt: Option<f64>,
    },
    Sent {
        number: u64,
        size_bytes: u32,
    },
    Lost {
        number: u64,
        size_bytes: u32,
        /// Number of lost packets; `number` is the largest of them.
        packets: u32,
    },
    /// A packet arrived that acknowledges up to this number.
    Acknowledged {
        number: u64,
    },
}

/// An event as stored in the file.
#[derive(Default)]
pub struct RawEvent {
    pub time: Time,
    /// `transport:packet_sent`, or only its second part.
    pub name: Text,
    pub group_id: Text,
    pub path: Text,
    pub data: Object<Data>,
}

#[derive(Default, Deserialize)]
pub struct Data {
    #[serde(default)]
    congestion_window: Number,
    /// The name that aioquic and picoquic use.
    #[serde(default)]
    cwnd: Number,
    /// The name that mvfst uses.
    #[serde(default)]
    current_cwnd: Number,
    #[serde(default)]
    ssthresh: Number,
    #[serde(default)]
    smoothed_rtt: Number,
    #[serde(default)]
    latest_rtt: Number,
    #[serde(default)]
    min_rtt: Number,
    #[serde(default)]
    max_datagram_size: Number,
    #[serde(default)]
    packet_size: Number,
    #[serde(default)]
    packet_number: Number,
    #[serde(default)]
    packet_type: Text,
    #[serde(default)]
    lost_packets: Number,
    #[serde(default)]
    lost_bytes: Number,
    #[serde(default)]
    largest_lost_packet_num: Number,
    #[serde(default)]
    path_id: Text,
    #[serde(default)]
    header: Object<Header>,
    #[serde(default)]
    raw: Object<Raw>,
    #[serde(default)]
    frames: List<Frame>,
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

#[derive(Default, Deserialize)]
struct Frame {
    #[serde(default)]
    acked_ranges: Largest,
}

impl RawEvent {
    /// The path of the event, if the connection has several and it names one.
    pub fn path(&self) -> &str {
        match self.path.0.as_str() {
            "" => &self.data.0.path_id.0,
            path => path,
        }
    }

    /// The event's meaning for application data, and the size of a datagram if it states one.
    pub fn what(&self) -> (Option<What>, Option<u32>) {
        let data = &self.data.0;
        let name = self.name.0.rsplit(':').next().unwrap_or("");
        let name = name.to_ascii_lowercase();
        let datagram_bytes = data.max_datagram_size.0.map(|bytes| bytes as u32);
        (self.what_of(&name), datagram_bytes)
    }

    fn what_of(&self, name: &str) -> Option<What> {
        let data = &self.data.0;
        match name {
            "metrics_updated"
            | "recovery_metrics_updated"
            | "metric_update"
            | "congestion_metric_update" => {
                // 0 means not yet known
                let told = |numbers: &[Number]| {
                    let mut told = numbers.iter().filter_map(|number| number.0);
                    told.find(|number| *number > 0.0)
                };
                let cwnd_bytes = told(&[data.congestion_window, data.cwnd, data.current_cwnd]);
                let ssthresh_bytes = told(&[data.ssthresh]);
                let srtt = told(&[data.smoothed_rtt]);
                let least_rtt = told(&[data.min_rtt, data.latest_rtt]);
                let any = [cwnd_bytes, ssthresh_bytes, srtt, least_rtt];
                any.iter().any(Option::is_some).then_some(What::Metrics {
                    cwnd_bytes,
                    ssthresh_bytes,
                    srtt,
                    least_rtt,
                })
            }
            "packet_sent" => Some(What::Sent {
                number: self.number()?,
                size_bytes: self.size_bytes(),
            }),
            "packet_lost" => Some(What::Lost {
                number: self.number()?,
                size_bytes: self.size_bytes(),
                packets: 1,
            }),
            "packets_lost" => Some(What::Lost {
                number: data.largest_lost_packet_num.0? as u64,
                size_bytes: data.lost_bytes.0.unwrap_or(0.0).clamp(0.0, 4e9) as u32,
                packets: data.lost_packets.0?.clamp(0.0, 1e6) as u32,
            }),
            "packet_received" => {
                self.number()?;
                let acknowledged = data.frames.0.iter().filter_map(|f| f.acked_ranges.0);
                let number = acknowledged.max_by(f64::total_cmp)? as u64;
                Some(What::Acknowledged { number })
            }
            _ => None,
        }
    }

    /// The number of an application data packet: other packets have separate numbers.
    fn number(&self) -> Option<u64> {
        let (data, header) = (&self.data.0, &self.data.0.header.0);
        let kind = match header.packet_type.0.as_str() {
            "" => data.packet_type.0.as_str(),
            kind => kind,
        };
        let kinds = ["", "1rtt", "0rtt", "onertt", "zerortt", "1-rtt", "0-rtt"];
        let application = kinds.iter().any(|known| kind.eq_ignore_ascii_case(known));
        let number = header.packet_number.0.or(data.packet_number.0);
        number.filter(|_| application).map(|number| number as u64)
    }

    fn size_bytes(&self) -> u32 {
        let data = &self.data.0;
        let told = [
            data.raw.0.length,
            data.header.0.packet_size,
            data.packet_size,
        ];
        let size = told.iter().find_map(|size| size.0);
        size.unwrap_or(0.0).clamp(0.0, MOST_PACKET_BYTES) as u32
    }
}

/// A time: a number, or a text that holds one.
#[derive(Clone, Copy, Default)]
pub struct Time(pub Option<f64>);

/// The largest number in nested lists.
#[derive(Clone, Copy, Default)]
pub struct Largest(pub Option<f64>);

/// A list of objects; empty if the value is something else.
pub struct List<T>(pub Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// A non-negative number, or a text that holds one.
#[derive(Clone, Copy, Default)]
pub struct Number(pub Option<f64>);

/// A text.
#[derive(Clone, Default)]
pub struct Text(pub String);

/// An object; empty if the value is something else.
#[derive(Default)]
pub struct Object<T>(pub T);

struct Loose<T>(PhantomData<T>);

/// Returns `default` for values that are not `$($visit)*`.
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

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<$kind, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Default::default())
            }

            $($visit)*
        }
    };
}

loosely!(Time, "a number", {
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Time, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Time(None))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Time, E> {
        Ok(Time(Some(value)))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Time, E> {
        Ok(Time(Some(value as f64)))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Time, E> {
        Ok(Time(Some(value as f64)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Time, E> {
        Ok(Time(text.parse().ok().filter(|v: &f64| v.is_finite())))
    }
});

loosely!(Largest, "numbers", {
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Largest, A::Error> {
        let mut largest: Option<f64> = None;
        while let Some(Largest(element)) = seq.next_element()? {
            largest = largest.into_iter().chain(element).max_by(f64::total_cmp);
        }
        Ok(Largest(largest))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Largest, E> {
        Ok(Largest(Some(value)))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Largest, E> {
        Ok(Largest(Some(value as f64)))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Largest, E> {
        Ok(Largest(Some(value as f64)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Largest, E> {
        Ok(Largest(text.parse().ok().filter(|v: &f64| v.is_finite())))
    }
});

loosely!(Number, "a number", {
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Number, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Number::default())
    }

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
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Text, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Text::default())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
        Ok(Text(text.to_string()))
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Text, E> {
        Ok(Text::default())
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Text, E> {
        Ok(Text(number.to_string())) // paths have numbers
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

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de> + Default> Visitor<'de> for Any<T> {
            type Value = List<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_bool<E: de::Error>(self, _: bool) -> Result<List<T>, E> {
                Ok(List::default())
            }

            fn visit_unit<E: de::Error>(self) -> Result<List<T>, E> {
                Ok(List::default())
            }

            fn visit_f64<E: de::Error>(self, _: f64) -> Result<List<T>, E> {
                Ok(List::default())
            }

            fn visit_u64<E: de::Error>(self, _: u64) -> Result<List<T>, E> {
                Ok(List::default())
            }

            fn visit_i64<E: de::Error>(self, _: i64) -> Result<List<T>, E> {
                Ok(List::default())
            }

            fn visit_str<E: de::Error>(self, _: &str) -> Result<List<T>, E> {
                Ok(List::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<List<T>, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(List::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<List<T>, A::Error> {
                let mut list = Vec::new();
                while let Some(Object(element)) = seq.next_element()? {
                    list.push(element);
                }
                Ok(List(list))
            }
        }

        deserializer.deserialize_any(Any(PhantomData))
    }
}
