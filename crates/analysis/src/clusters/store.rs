//! The stored form of clusters: one JSON text.

use serde::{Deserialize, Serialize};

use super::{BINS, CLIENTS, ClusterError, Clusters, Counts, Member, check_name};

/// The version that is written; no other version is read.
const VERSION: u32 = 1;

/// The stored form of clusters. Unknown keys are refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stored {
    clusters_version: u32,
    clients: Vec<StoredClient>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredClient {
    prefix: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    network: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    region: Option<String>,
    updated_s: f64,
    /// Bin (a tenth of ln cwnd each), packets, losses.
    counts: Vec<(u8, f64, f64)>,
}

impl From<&Clusters> for Stored {
    fn from(clusters: &Clusters) -> Self {
        let clients = clusters
            .members
            .iter()
            .map(|(prefix, member)| StoredClient {
                prefix: prefix.to_string(),
                network: member.network.clone(),
                region: member.region.clone(),
                updated_s: member.updated_s,
                counts: (member.counts.0.iter())
                    .map(|(&bin, &(packets, losses))| (bin, packets, losses))
                    .collect(),
            });
        Self {
            clusters_version: VERSION,
            clients: clients.collect(),
        }
    }
}

impl TryFrom<Stored> for Clusters {
    type Error = ClusterError;

    fn try_from(stored: Stored) -> Result<Self, ClusterError> {
        let bad = |message: String| Err(ClusterError::BadStore(message));
        if stored.clusters_version != VERSION {
            let got = stored.clusters_version;
            return bad(format!("clusters_version is {got}, expected {VERSION}"));
        }
        if stored.clients.len() > CLIENTS {
            let got = stored.clients.len();
            return bad(format!("{got} clients, expected at most {CLIENTS}"));
        }
        let mut clusters = Self::default();
        for client in stored.clients {
            let prefix = client.prefix.parse()?;
            check_name("network", client.network.as_deref())?;
            check_name("region", client.region.as_deref())?;
            if !client.updated_s.is_finite() {
                return bad(format!("{prefix}: updated_s is no finite number"));
            }
            let mut counts = Counts::default();
            for (bin, packets, losses) in client.counts {
                let whole = packets.is_finite() && losses.is_finite();
                if !(whole && packets > 0.0 && losses >= 0.0 && usize::from(bin) < BINS) {
                    return bad(format!(
                        "{prefix}: got {losses} losses in {packets} packets in bin {bin}, expected \
                         packets > 0, losses >= 0, a bin below {BINS}"
                    ));
                }
                if counts.0.insert(bin, (packets, losses)).is_some() {
                    return bad(format!("{prefix}: bin {bin} twice"));
                }
            }
            let member = Member {
                network: client.network,
                region: client.region,
                counts,
                updated_s: client.updated_s,
            };
            if clusters.members.insert(prefix, member).is_some() {
                return bad(format!("{prefix} twice"));
            }
        }
        Ok(clusters)
    }
}
