//! Writes into tables with three copies, and looks up what it wrote, until somebody writes to its standard input; then it
//! reads everything back. It prints a line for each round, and fails if a row is missing, doubled or another one.
//!
//! Arguments: the address, and a word for the names of the tables.

use std::collections::HashMap;
use std::error::Error;
use std::future::Future;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fluss::client::{FlussConnection, EARLIEST_OFFSET};
use fluss::config::Config;
use fluss::metadata::{DataTypes, Schema, SchemaBuilder, TableDescriptor, TablePath};
use fluss::row::{DataGetters, GenericRow};
use tokio::time::timeout;

const BUCKETS: i32 = 3;
const ROWS: i64 = 50;
const KEYS: i64 = 20;
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_secs(3);

type Outcome<T> = Result<T, Box<dyn Error>>;

#[tokio::main]
async fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut config = Config::default();
    config.bootstrap_servers = words[0].clone();
    let connection = FlussConnection::new(config).await?;
    let log = TablePath::new("fluss", &format!("{}_log", words[1]));
    let keys = TablePath::new("fluss", &format!("{}_keys", words[1]));
    make(&connection, &log, columns()).await?;
    make(&connection, &keys, columns().primary_key(vec!["number"])?).await?;
    let rounds = write(&connection, &log, &keys).await?;
    within("reading", check(&connection, &log, rounds * ROWS)).await??;
    println!("whole {rounds}");
    Ok(())
}

fn columns() -> SchemaBuilder {
    Schema::builder()
        .column("number", DataTypes::bigint())
        .column("text", DataTypes::string())
}

async fn make(connection: &FlussConnection, path: &TablePath, columns: SchemaBuilder) -> Outcome<()> {
    let table = TableDescriptor::builder()
        .schema(columns.build()?)
        .distributed_by(Some(BUCKETS), vec![])
        .property("table.replication.factor", "3")
        .build()?;
    Ok(connection.get_admin()?.create_table(path, &table, false).await?)
}

async fn write(connection: &FlussConnection, log: &TablePath, keys: &TablePath) -> Outcome<i64> {
    let (log_table, key_table) = (connection.get_table(log).await?, connection.get_table(keys).await?);
    let appends = log_table.new_append()?.create_writer()?;
    let upserts = key_table.new_upsert()?.create_writer()?;
    let mut lookups = key_table.new_lookup()?.create_lookuper()?;
    let ended = end_of_input();
    let mut round = 0;
    while !ended.load(Ordering::Relaxed) {
        let text = format!("round {round}");
        for number in round * ROWS..(round + 1) * ROWS {
            appends.append(&row(number, &text))?;
        }
        for key in 0..KEYS {
            upserts.upsert(&row(key, &text))?;
        }
        within("the appends", appends.flush()).await??;
        within("the upserts", upserts.flush()).await??;
        let mut key = GenericRow::new(1);
        key.set_field(0, round % KEYS);
        let found = loop {
            if let Ok(found) = timeout(LOOK_AGAIN, lookups.lookup(&key)).await {
                break found?;
            }
            // The client asks a server that has died for ever, and nobody else who leads now: opening the table does.
            let asked_again = connection.get_table(keys).await.is_ok();
            println!("a lookup waits; asked who leads: {asked_again}");
        };
        let found = found.get_single_row()?.ok_or("a key is not found")?;
        same(round % KEYS, &text, found.get_long(0)?, found.get_string(1)?)?;
        round += 1;
        println!("round {round}");
    }
    Ok(round)
}

async fn check(connection: &FlussConnection, path: &TablePath, rows: i64) -> Outcome<()> {
    let table = connection.get_table(path).await?;
    let scanner = table.new_scan().create_log_scanner()?;
    for bucket in 0..BUCKETS {
        scanner.subscribe(bucket, EARLIEST_OFFSET).await?;
    }
    let mut next: HashMap<i32, i64> = HashMap::new();
    let mut seen = vec![false; rows as usize];
    let (mut left, began) = (rows, Instant::now());
    while left > 0 {
        if began.elapsed() > PATIENCE {
            return Err(format!("{left} of {rows} rows are missing").into());
        }
        for (bucket, records) in scanner.poll(Duration::from_secs(1)).await?.into_records_by_buckets() {
            for one in records {
                let offset = next.entry(bucket.bucket_id()).or_insert(0);
                if one.offset() != *offset {
                    return Err(format!("{bucket:?} goes from {offset} to {}", one.offset()).into());
                }
                *offset += 1;
                let number = one.row().get_long(0)?;
                same(number, &format!("round {}", number / ROWS), number, one.row().get_string(1)?)?;
                if std::mem::replace(&mut seen[number as usize], true) {
                    return Err(format!("row {number} is there twice").into());
                }
                left -= 1;
            }
        }
    }
    Ok(())
}

async fn within<T>(what: &str, work: impl Future<Output = T>) -> Outcome<T> {
    let found = timeout(PATIENCE, work).await;
    Ok(found.map_err(|_| format!("{what}: no answer within {PATIENCE:?}"))?)
}

fn row<'a>(number: i64, text: &'a str) -> GenericRow<'a> {
    let mut made = GenericRow::new(2);
    made.set_field(0, number);
    made.set_field(1, text);
    made
}

fn same(number: i64, text: &str, found_number: i64, found_text: &str) -> Outcome<()> {
    if (number, text) != (found_number, found_text) {
        return Err(format!("row {number} is ({found_number}, {found_text}), not {text}").into());
    }
    Ok(())
}

fn end_of_input() -> Arc<AtomicBool> {
    let ended = Arc::new(AtomicBool::new(false));
    let told = ended.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        told.store(true, Ordering::Relaxed);
    });
    ended
}
