//! `pathcast-agent`.
fn main() {
    println!(
        "{}",
        serde_json::to_string_pretty(&pathcast_agent::space()).unwrap()
    );
}
