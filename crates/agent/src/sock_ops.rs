//! What connections begin with, by a BPF program of a cgroup that looks clients up in a trie of prefixes. It is there
//! as long as the agent: a restarted one sets it again, and nothing stays of it.

use std::collections::BTreeMap;
use std::io;

use ipnet::IpNet;

use crate::hands::Hands;
use crate::plan::Beginning;
use crate::settings::Settings;

#[cfg(all(feature = "bpf", target_os = "linux"))]
pub(crate) use program::SockOps;

/// The program, which this build lacks.
#[cfg(not(all(feature = "bpf", target_os = "linux")))]
#[derive(Default)]
pub(crate) struct SockOps(());

#[cfg(not(all(feature = "bpf", target_os = "linux")))]
impl SockOps {
    pub(crate) fn set(
        &mut self,
        hands: &Hands,
        _settings: &Settings,
        beginnings: &BTreeMap<Option<IpNet>, Beginning>,
    ) -> io::Result<()> {
        if hands.dry {
            print(beginnings);
            return Ok(());
        }
        Err(io::Error::other(
            "connections is sock_ops, which needs a pathcast-agent that was built with --features bpf",
        ))
    }

    pub(crate) fn differences(&self) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }

    pub(crate) fn remove(&mut self, _hands: &Hands, _settings: &Settings) -> io::Result<()> {
        Ok(())
    }
}

/// What a dry run shows.
fn print(beginnings: &BTreeMap<Option<IpNet>, Beginning>) {
    for (net, one) in beginnings {
        let net = net.map_or_else(|| "all others".into(), |net| net.to_string());
        println!(
            "sock_ops {net}: initial window {:?}, congestion control {:?}, paced {}",
            one.initial_window, one.congestion_control, one.paced
        );
    }
}

#[cfg(all(feature = "bpf", target_os = "linux"))]
mod program {
    use std::fs::File;
    use std::net::IpAddr;
    use std::os::fd::AsRawFd;

    use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, PrintLevel, set_print};

    use super::*;

    /// libelf needs the numbers in an object to be aligned.
    #[repr(C, align(16))]
    struct Aligned<T: ?Sized>(T);
    static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(
        env!("OUT_DIR"),
        "/beginnings.bpf.o"
    )));

    const TRIES: [&str; 2] = ["first", "second"];

    /// The program, once it is attached.
    #[derive(Default)]
    pub(crate) struct SockOps {
        attached: Option<Attached>,
    }

    struct Attached {
        /// Dropped first: it takes the program off the cgroup.
        _link: Link,
        object: Object,
        in_use: usize,
    }

    impl SockOps {
        /// Makes all of this hold for connections that are accepted from now on.
        pub(crate) fn set(
            &mut self,
            hands: &Hands,
            settings: &Settings,
            beginnings: &BTreeMap<Option<IpNet>, Beginning>,
        ) -> io::Result<()> {
            if hands.dry {
                print(beginnings);
                return Ok(());
            }
            let other = |error: libbpf_rs::Error| io::Error::other(format!("sock_ops: {error:#}"));
            if self.attached.is_none() {
                self.attached = Some(attach(settings)?);
            }
            let Some(attached) = &mut self.attached else {
                return Ok(());
            };
            let next = 1 - attached.in_use;
            let maps: BTreeMap<String, _> = attached
                .object
                .maps_mut()
                .map(|map| (map.name().to_string_lossy().into_owned(), map))
                .collect();
            let trie = &maps[TRIES[next]];
            for key in trie.keys().collect::<Vec<_>>() {
                trie.delete(&key).map_err(other)?;
            }
            for (net, beginning) in beginnings {
                for key in keys(*net) {
                    trie.update(&key, &value(beginning), MapFlags::ANY)
                        .map_err(other)?;
                }
            }
            let zero = 0u32.to_ne_bytes();
            maps["in_use"]
                .update(&zero, &(next as u32).to_ne_bytes(), MapFlags::ANY)
                .map_err(other)?;
            attached.in_use = next;
            Ok(())
        }

        pub(crate) fn differences(&self) -> io::Result<Vec<String>> {
            Ok(match self.attached {
                Some(_) => Vec::new(),
                None => vec!["the program of sock_ops is not attached".into()],
            })
        }

        pub(crate) fn remove(&mut self, hands: &Hands, _settings: &Settings) -> io::Result<()> {
            if !hands.dry {
                self.attached = None;
            }
            Ok(())
        }
    }

    fn attach(settings: &Settings) -> io::Result<Attached> {
        let folder = settings.cgroup.as_deref();
        let folder = folder.ok_or_else(|| io::Error::other("sock_ops needs a cgroup"))?;
        let at = |error: io::Error| {
            io::Error::new(
                error.kind(),
                format!("sock_ops: cgroup {}: {error}", folder.display()),
            )
        };
        let cgroup = File::open(folder).map_err(at)?;
        // its words are in the error too
        set_print(Some((PrintLevel::Warn, |_, _| {})));
        let load = || -> libbpf_rs::Result<(Object, Link)> {
            let object = ObjectBuilder::default().open_memory(&OBJECT.0)?.load()?;
            let program = object.progs_mut().next().expect("it has one");
            let link = program.attach_cgroup(cgroup.as_raw_fd())?;
            Ok((object, link))
        };
        let (object, link) = load().map_err(|error| at(io::Error::other(format!("{error:#}"))))?;
        Ok(Attached {
            _link: link,
            object,
            in_use: 0,
        })
    }

    /// `struct key` of a prefix: bits in the machine's order, then the address; IPv4 is mapped. All others are a prefix
    /// of no bits.
    fn keys(net: Option<IpNet>) -> Vec<Vec<u8>> {
        let (bits, octets) = match net {
            None => (0, [0; 16]),
            Some(net) => match net.network() {
                IpAddr::V4(address) => (96 + net.prefix_len(), address.to_ipv6_mapped().octets()),
                IpAddr::V6(address) => (net.prefix_len(), address.octets()),
            },
        };
        let mut key = u32::from(bits).to_ne_bytes().to_vec();
        key.extend(octets);
        vec![key]
    }

    /// `struct beginning`
    fn value(beginning: &Beginning) -> Vec<u8> {
        let mut value = beginning.initial_window.unwrap_or(0).to_ne_bytes().to_vec();
        value.extend(u32::from(beginning.paced).to_ne_bytes());
        let mut scheme = beginning
            .congestion_control
            .clone()
            .unwrap_or_default()
            .into_bytes();
        scheme.resize(16, 0);
        value.extend(scheme);
        value
    }
}
