//! Transactions: two threads move money between accounts, and none is lost.
//!
//! `cargo run --release --example transactions`

use std::thread;

use gphash::store::{Store, StoreOptions, Transaction};
use gphash::{Error, Result};

fn balance(transaction: &mut Transaction, account: &str) -> Result<u64> {
    let bytes = transaction.get(account.as_bytes())?.expect("an account");
    Ok(u64::from_le_bytes(bytes.try_into().expect("8 bytes")))
}

/// Moves money; again, if another thread has changed an account meanwhile.
fn transfer(store: &Store, from: &str, to: &str, amount: u64) -> Result<()> {
    loop {
        let mut transaction = store.transaction();
        let left = balance(&mut transaction, from)?;
        let there = balance(&mut transaction, to)?;
        if left < amount {
            return Ok(());
        }
        transaction.put(from, (left - amount).to_le_bytes())?;
        transaction.put(to, (there + amount).to_le_bytes())?;
        match transaction.commit() {
            Err(Error::Conflict) => continue,
            done => return done,
        }
    }
}

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory for the example");
    let store = Store::open(dir.path().join("bank"), &StoreOptions::new())?;
    store.put("alice", 500u64.to_le_bytes())?;
    store.put("bob", 500u64.to_le_bytes())?;

    thread::scope(|scope| {
        let there = scope.spawn(|| (0..100).try_for_each(|_| transfer(&store, "alice", "bob", 7)));
        let back = scope.spawn(|| (0..100).try_for_each(|_| transfer(&store, "bob", "alice", 3)));
        there
            .join()
            .expect("no panic")
            .and(back.join().expect("no panic"))
    })?;

    let mut transaction = store.transaction();
    let (alice, bob) = (
        balance(&mut transaction, "alice")?,
        balance(&mut transaction, "bob")?,
    );
    transaction.rollback();
    println!("alice has {alice}, bob has {bob}");
    assert_eq!(alice + bob, 1000);
    store.close()
}
