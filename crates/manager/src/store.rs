//! The state in a database, SQLite or PostgreSQL. What belongs together is written in one transaction.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::str::FromStr;
use std::sync::Mutex;

use pathcast_control::{Agent, Cause, Entry, Head, Name, Prefix, Secret, Trial, Version};
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::{Any, AnyConnection, AnyPool, ConnectOptions, Connection, Row, Transaction};

use crate::error::ManagerError;

/// Version of the tables.
const TABLES: i64 = 1;
/// Key of the lock by which only one manager at a time writes to a database of PostgreSQL.
const LOCK: i64 = 0x7061_7468;
/// Rows of a table in one statement: PostgreSQL takes 65,535 parameters, SQLite 32,766.
const ROWS: usize = 4000;

/// All that is stored.
#[derive(Debug, Default)]
pub struct Stored {
    /// The rest of the fleet.
    pub head: Head,
    /// What is known of prefixes.
    pub entries: Vec<(Prefix, Entry)>,
    /// Templates in force.
    pub map: BTreeMap<Prefix, Name>,
    /// Trials.
    pub trials: Vec<Trial>,
    /// Agents and their secrets.
    pub agents: Vec<(Agent, Secret)>,
}

/// What one transaction writes.
#[derive(Debug, Default)]
pub struct Batch {
    /// The new version, with the map's changes.
    pub version: Option<Version>,
    /// The rest of the fleet, if it changed.
    pub head: Option<Head>,
    /// Entries.
    pub entries: Vec<(Prefix, Entry)>,
    /// Trials.
    pub trials: Vec<Trial>,
    /// Agents with their secrets; none: removed.
    pub agents: Vec<(Agent, Option<Secret>)>,
}

impl Batch {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.version.is_none()
            && self.head.is_none()
            && self.entries.is_empty()
            && self.trials.is_empty()
            && self.agents.is_empty()
    }
}

/// Why a batch is not written.
#[derive(Debug)]
pub enum WriteError {
    /// What the database says; nothing is written.
    Failed(String),
    /// Another manager has taken the database.
    Taken,
}

/// A database that only this manager writes to.
pub struct Store {
    pool: AnyPool,
    place: String,
    /// Rises with each manager that takes the database.
    epoch: i64,
    /// Held as long as the manager runs.
    _lock: Lock,
}

enum Lock {
    File(#[allow(dead_code)] File),
    Session(#[allow(dead_code)] Mutex<AnyConnection>),
}

impl Store {
    /// Opens a database, makes its tables if they are not there, and locks it. With PostgreSQL, `wait` is called each
    /// second while another manager has it; it says whether to wait on.
    ///
    /// # Errors
    /// [`ManagerError::State`] if it cannot be reached, was made by a newer version, or another manager has it.
    pub async fn open(url: &str, wait: impl Fn() -> bool) -> Result<Self, ManagerError> {
        sqlx::any::install_default_drivers();
        let place = redacted(url);
        let failed = |message: String| ManagerError::State {
            place: place.clone(),
            message,
        };
        let is_sqlite = url.starts_with("sqlite:");
        let file_lock = if is_sqlite {
            let file = url.trim_start_matches("sqlite:");
            let file = file.strip_prefix("//").unwrap_or(file);
            let file = file.split('?').next().unwrap_or(file);
            Some(Lock::File(lock_file(file).map_err(failed)?))
        } else {
            None
        };
        let options =
            AnyConnectOptions::from_str(url).map_err(|error| failed(error.to_string()))?;
        let options = options.disable_statement_logging();
        let lock = match file_lock {
            Some(lock) => lock,
            None => lock_session(&options, &wait).await.map_err(failed)?,
        };
        let pool = AnyPoolOptions::new()
            .max_connections(4)
            .connect_with(options)
            .await
            .map_err(|error| failed(error.to_string()))?;
        let mut store = Self {
            pool,
            place: place.clone(),
            epoch: 0,
            _lock: lock,
        };
        store
            .prepare(is_sqlite)
            .await
            .map_err(|error| failed(error.to_string()))?;
        Ok(store)
    }

    async fn prepare(&mut self, is_sqlite: bool) -> Result<(), sqlx::Error> {
        let bytes = if is_sqlite { "BLOB" } else { "BYTEA" };
        if is_sqlite {
            // readers do not wait for the writer; a commit survives a loss of power
            sqlx::query("PRAGMA journal_mode = WAL")
                .execute(&self.pool)
                .await?;
        }
        for table in [
            "tables (version BIGINT PRIMARY KEY, epoch BIGINT NOT NULL)".to_string(),
            "head (id BIGINT PRIMARY KEY, content TEXT NOT NULL)".into(),
            format!("prefixes (prefix TEXT PRIMARY KEY, entry {bytes} NOT NULL)"),
            "map (prefix TEXT PRIMARY KEY, template TEXT NOT NULL)".into(),
            "trials (id BIGINT PRIMARY KEY, content TEXT NOT NULL)".into(),
            "agents (name TEXT PRIMARY KEY, secret TEXT NOT NULL, content TEXT NOT NULL)".into(),
            "history (version BIGINT PRIMARY KEY, is_slot BIGINT NOT NULL, content TEXT NOT NULL)"
                .into(),
        ] {
            sqlx::query(&format!("CREATE TABLE IF NOT EXISTS {table}"))
                .execute(&self.pool)
                .await?;
        }
        let found = sqlx::query("SELECT version FROM tables")
            .fetch_optional(&self.pool)
            .await?;
        match found.map(|row| row.get::<i64, _>(0)) {
            None => {
                let insert = "INSERT INTO tables (version, epoch) VALUES ($1, 0)";
                sqlx::query(insert).bind(TABLES).execute(&self.pool).await?;
            }
            Some(TABLES) => {}
            Some(version) => {
                let message =
                    format!("tables of version {version}, expected {TABLES}; update this program");
                return Err(sqlx::Error::Configuration(message.into()));
            }
        }
        // from now on a manager that lost its lock cannot write
        let taken = sqlx::query("UPDATE tables SET epoch = epoch + 1 RETURNING epoch")
            .fetch_one(&self.pool)
            .await?;
        self.epoch = taken.get(0);
        Ok(())
    }

    /// Reads all of it.
    ///
    /// # Errors
    /// [`ManagerError::State`] if a row cannot be read: nothing is left out unseen.
    pub async fn load(&self) -> Result<Stored, ManagerError> {
        self.read_all()
            .await
            .map_err(|message| self.failed(message))
    }

    fn failed(&self, message: String) -> ManagerError {
        ManagerError::State {
            place: self.place.clone(),
            message,
        }
    }

    async fn rows(&self, query: &str) -> Result<Vec<sqlx::any::AnyRow>, String> {
        sqlx::query(query)
            .fetch_all(&self.pool)
            .await
            .map_err(|error| error.to_string())
    }

    async fn read_all(&self) -> Result<Stored, String> {
        let mut stored = Stored::default();
        let parse = |what: &str, text: &str| -> Result<serde_json::Value, String> {
            serde_json::from_str(text).map_err(|error| format!("{what}: {error}"))
        };
        if let Some(row) = self
            .rows("SELECT content FROM head WHERE id = 1")
            .await?
            .first()
        {
            let value = parse("head", &text(row, 0)?)?;
            stored.head =
                serde_json::from_value(value).map_err(|error| format!("head: {error}"))?;
        }
        for row in self.rows("SELECT prefix, entry FROM prefixes").await? {
            let prefix = prefix(&text(&row, 0)?)?;
            let bytes: Vec<u8> = row.try_get(1).map_err(|error| error.to_string())?;
            let entry =
                postcard::from_bytes(&bytes).map_err(|error| format!("{prefix}: {error}"))?;
            stored.entries.push((prefix, entry));
        }
        for row in self.rows("SELECT prefix, template FROM map").await? {
            let name = text(&row, 1)?
                .parse()
                .map_err(|error| format!("map: {error}"))?;
            stored.map.insert(prefix(&text(&row, 0)?)?, name);
        }
        for row in self.rows("SELECT content FROM trials ORDER BY id").await? {
            let trial = serde_json::from_str(&text(&row, 0)?);
            stored
                .trials
                .push(trial.map_err(|error| format!("trials: {error}"))?);
        }
        for row in self
            .rows("SELECT secret, content FROM agents ORDER BY name")
            .await?
        {
            let secret = text(&row, 0)?
                .parse()
                .map_err(|error| format!("agents: {error}"))?;
            let agent = serde_json::from_str(&text(&row, 1)?);
            stored
                .agents
                .push((agent.map_err(|error| format!("agents: {error}"))?, secret));
        }
        Ok(stored)
    }

    /// Writes a batch: all of it or nothing.
    ///
    /// # Errors
    /// [`WriteError`]: what the database says, or that another manager has it now.
    pub async fn write(&self, batch: &Batch) -> Result<(), WriteError> {
        match self.write_all(batch).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(WriteError::Taken),
            Err(error) => Err(WriteError::Failed(error.to_string())),
        }
    }

    /// Whether the database is still this manager's, and then all is written.
    async fn write_all(&self, batch: &Batch) -> Result<bool, sqlx::Error> {
        let mut transaction = self.pool.begin().await?;
        let own = "UPDATE tables SET epoch = epoch WHERE epoch = $1";
        let own = sqlx::query(own)
            .bind(self.epoch)
            .execute(&mut *transaction)
            .await?;
        if own.rows_affected() != 1 {
            return Ok(false);
        }
        if let Some(version) = &batch.version {
            write_version(&mut transaction, version).await?;
        }
        if let Some(head) = &batch.head {
            let query = "INSERT INTO head (id, content) VALUES (1, $1) \
                ON CONFLICT (id) DO UPDATE SET content = excluded.content";
            sqlx::query(query)
                .bind(json(head))
                .execute(&mut *transaction)
                .await?;
        }
        for rows in batch.entries.chunks(ROWS) {
            let query = upsert("prefixes", "prefix", "entry", rows.len());
            let mut query = sqlx::query(&query);
            for (prefix, entry) in rows {
                query = query
                    .bind(prefix.to_string())
                    .bind(postcard::to_stdvec(entry).unwrap_or_default());
            }
            query.execute(&mut *transaction).await?;
        }
        for trial in &batch.trials {
            let query = "INSERT INTO trials (id, content) VALUES ($1, $2) \
                ON CONFLICT (id) DO UPDATE SET content = excluded.content";
            let query = sqlx::query(query).bind(number(trial.id)).bind(json(trial));
            query.execute(&mut *transaction).await?;
        }
        for (agent, secret) in &batch.agents {
            let Some(secret) = secret else {
                let query =
                    sqlx::query("DELETE FROM agents WHERE name = $1").bind(agent.name.clone());
                query.execute(&mut *transaction).await?;
                continue;
            };
            let query = "INSERT INTO agents (name, secret, content) VALUES ($1, $2, $3) \
                ON CONFLICT (name) DO UPDATE SET secret = excluded.secret, content = excluded.content";
            let query = sqlx::query(query)
                .bind(agent.name.clone())
                .bind(secret.reveal())
                .bind(json(agent));
            query.execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(true)
    }

    /// Versions above `after` and at most `until`, the newest first, at most `limit` of them; without those of slots of
    /// trials, unless `slots`.
    ///
    /// # Errors
    /// What the database says.
    pub async fn history(
        &self,
        after: u64,
        until: u64,
        limit: u64,
        slots: bool,
    ) -> Result<Vec<Version>, String> {
        let query = "SELECT content FROM history WHERE version > $1 AND version <= $2 AND is_slot <= $3 \
            ORDER BY version DESC LIMIT $4";
        let query = sqlx::query(query)
            .bind(number(after))
            .bind(number(until))
            .bind(i64::from(slots))
            .bind(number(limit));
        let rows = query
            .fetch_all(&self.pool)
            .await
            .map_err(|error| error.to_string())?;
        let read = |row: &sqlx::any::AnyRow| {
            serde_json::from_str(&text(row, 0)?).map_err(|error| error.to_string())
        };
        rows.iter().map(read).collect()
    }
}

async fn write_version(
    transaction: &mut Transaction<'_, Any>,
    version: &Version,
) -> Result<(), sqlx::Error> {
    let query = "INSERT INTO history (version, is_slot, content) VALUES ($1, $2, $3)";
    let is_slot = i64::from(version.cause == Cause::Slot);
    let query = sqlx::query(query)
        .bind(number(version.version))
        .bind(is_slot)
        .bind(json(version));
    query.execute(&mut **transaction).await?;
    let set: Vec<_> = version
        .changes
        .iter()
        .filter(|change| change.after.is_some())
        .collect();
    for rows in set.chunks(ROWS) {
        let query = upsert("map", "prefix", "template", rows.len());
        let mut query = sqlx::query(&query);
        for change in rows {
            let template = change
                .after
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default();
            query = query.bind(change.prefix.to_string()).bind(template);
        }
        query.execute(&mut **transaction).await?;
    }
    for change in version
        .changes
        .iter()
        .filter(|change| change.after.is_none())
    {
        let query =
            sqlx::query("DELETE FROM map WHERE prefix = $1").bind(change.prefix.to_string());
        query.execute(&mut **transaction).await?;
    }
    Ok(())
}

/// A statement that sets several rows of two columns.
fn upsert(table: &str, key: &str, value: &str, rows: usize) -> String {
    let rows: Vec<String> = (0..rows)
        .map(|row| format!("(${}, ${})", 2 * row + 1, 2 * row + 2))
        .collect();
    let rows = rows.join(", ");
    format!(
        "INSERT INTO {table} ({key}, {value}) VALUES {rows} ON CONFLICT ({key}) DO UPDATE SET {value} = excluded.{value}"
    )
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("keys are texts")
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn text(row: &sqlx::any::AnyRow, column: usize) -> Result<String, String> {
    row.try_get(column).map_err(|error| error.to_string())
}

fn prefix(text: &str) -> Result<Prefix, String> {
    text.parse()
        .map_err(|error: pathcast_control::ControlError| error.to_string())
}

/// A URL without its password.
fn redacted(url: &str) -> String {
    match url
        .split_once("://")
        .and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?)))
    {
        Some((scheme, (user, host))) => {
            let user = user.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}@{host}")
        }
        None => url.into(),
    }
}

/// Makes the database of SQLite readable by its user alone: it has secrets. Locks a file beside it.
fn lock_file(file: &str) -> Result<File, String> {
    use std::os::unix::fs::OpenOptionsExt;
    if file.is_empty() || file.contains(":memory:") {
        return Err("expected sqlite:///FILE: what is kept in memory alone is lost".into());
    }
    let open = |file: &str| {
        let mut options = OpenOptions::new();
        options
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600);
        options
            .open(file)
            .map_err(|error| format!("{file}: {error}"))
    };
    let made = open(file)?;
    let mode =
        std::os::unix::fs::MetadataExt::mode(&made.metadata().map_err(|error| error.to_string())?);
    if mode & 0o077 != 0 {
        return Err(format!(
            "others may read {file}, which has secrets; expected chmod 600"
        ));
    }
    let lock = open(&format!("{file}.lock"))?;
    let locked = rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive);
    match locked {
        Ok(()) => Ok(lock),
        Err(_) => {
            Err("another manager has it; expected a file of its own, or stop that one".into())
        }
    }
}

/// Takes the lock of a database of PostgreSQL, in a session of its own: with the session the lock ends.
async fn lock_session(
    options: &AnyConnectOptions,
    wait: &impl Fn() -> bool,
) -> Result<Lock, String> {
    let mut session = AnyConnection::connect_with(options)
        .await
        .map_err(|error| error.to_string())?;
    loop {
        let row = sqlx::query("SELECT CASE WHEN pg_try_advisory_lock($1) THEN 1 ELSE 0 END")
            .bind(LOCK)
            .fetch_one(&mut session)
            .await
            .map_err(|error| error.to_string())?;
        if row
            .try_get::<i32, _>(0)
            .map_err(|error| error.to_string())?
            == 1
        {
            return Ok(Lock::Session(Mutex::new(session)));
        }
        if !wait() {
            return Err("stopped while another manager has it".into());
        }
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
}
