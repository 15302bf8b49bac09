use super::*;

fn configuration(templates: &str, prefixes: &str, default: &str) -> Configuration {
    let text = format!(
        r#"{{"format":1,"version":3,"templates":[{templates}],"prefixes":{{{prefixes}}},"default":"{default}","made_at_ms":1}}"#
    );
    Configuration::read(text.as_bytes()).unwrap()
}

fn settings(text: &str) -> Settings {
    toml::from_str(text).unwrap()
}

fn plan(configuration: &Configuration, settings: &Settings) -> Result<Plan, String> {
    Plan::of(configuration, settings, &BTreeMap::new()).map_err(|error| error.to_string())
}

const FAR: &str =
    r#"{"name":"far","knobs":{"initial_window":40,"congestion_control":"bbr","pacing":"on"}}"#;
const IDLE: &str =
    r#"{"name":"idle","knobs":{"slow_start_after_idle":false,"receive_buffer_bytes":65536}}"#;
const H2: &str = r#"{"name":"two","knobs":{"http_version":"h2"}}"#;
const POOLS: &str = r#"
[[pool]]
name = "a"
namespace = "a"
addresses = ["10.200.0.1"]
default = true
http_version = "h2"
[[pool]]
name = "b"
namespace = "b"
addresses = ["10.200.0.2"]
http_version = "h2"
[[pool]]
name = "c"
namespace = "c"
addresses = ["10.200.0.3"]
"#;
const HAPROXY: &str = "[haproxy]\nsocket = \"/s\"\nmap = \"/m\"\n";
const FORWARD: &str = "[forward]\naddresses = [\"10.0.0.1\"]\nports = [443]\n";

#[test]
fn connections_begin_by_prefix_and_the_default_holds_for_the_rest() {
    let asked = configuration(
        FAR,
        r#""10.1.0.0/16":"far","10.1.2.0/24":"default""#,
        "default",
    );
    let space = plan(&asked, &settings("")).unwrap().spaces.remove(0);
    let windows: Vec<_> = space
        .beginnings
        .iter()
        .map(|(net, one)| (net.unwrap().to_string(), one.initial_window))
        .collect();
    assert_eq!(
        windows,
        [
            ("10.1.0.0/16".to_string(), Some(40)),
            ("10.1.2.0/24".to_string(), None)
        ]
    );
    let asked = configuration(FAR, "", "far");
    let space = plan(&asked, &settings("")).unwrap().spaces.remove(0);
    assert_eq!(space.beginnings[&None].initial_window, Some(40));
    let nothing = plan(&configuration(FAR, "", "default"), &settings("")).unwrap();
    assert_eq!(nothing.spaces, [Space::default()]);
}

#[test]
fn what_cannot_be_set_here_is_refused_whole_with_the_knob() {
    let paced = r#"{"name":"p","knobs":{"congestion_control":"cubic","pacing":"on"}}"#;
    let unpaced = r#"{"name":"p","knobs":{"congestion_control":"bbr","pacing":"off"}}"#;
    let haproxy = format!("{POOLS}{HAPROXY}");
    let forward = format!("{POOLS}{FORWARD}");
    let slow = r#"{"name":"p","knobs":{"keep_alive_s":5}}"#;
    let both = format!("{IDLE},{H2},{FAR}");
    for (templates, prefixes, settings_text, said) in [
        (
            H2,
            r#""10.0.0.0/8":"two""#,
            "",
            "http_version is a listener's",
        ),
        (
            IDLE,
            r#""10.0.0.0/8":"idle""#,
            "",
            "tcp_rmem holds for a namespace",
        ),
        (
            IDLE,
            r#""10.0.0.0/8":"idle""#,
            &haproxy,
            "tcp_rmem holds for a namespace",
        ),
        (paced, r#""10.0.0.0/8":"p""#, "", "routes cannot"),
        (unpaced, r#""10.0.0.0/8":"p""#, "", "always paces"),
        (
            slow,
            r#""10.0.0.0/8":"p""#,
            &haproxy,
            "one with such servers",
        ),
        // three templates, and two pools beside the default's
        (
            &both,
            r#""10.0.0.0/8":"idle","11.0.0.0/8":"two","12.0.0.0/8":"far""#,
            &forward,
            "no other template has",
        ),
    ] {
        let asked = configuration(templates, prefixes, "default");
        let error = plan(&asked, &settings(settings_text)).unwrap_err();
        assert!(error.contains(said), "{templates}: {error}");
    }
}

#[test]
fn haproxy_chooses_the_pool_and_the_knobs_of_tcp_stay_on_its_own_host() {
    let templates = format!("{FAR},{H2}");
    let prefixes = r#""10.1.0.0/16":"far","10.2.0.0/16":"two""#;
    let asked = configuration(&templates, prefixes, "default");
    let plan = plan(&asked, &settings(&format!("{POOLS}{HAPROXY}"))).unwrap();
    assert_eq!(plan.default_pool.as_deref(), Some("a"));
    let pools: Vec<&str> = plan.map.values().map(String::as_str).collect();
    assert_eq!(pools, ["a", "a"]);
    assert_eq!(plan.spaces.len(), 1);
    assert_eq!(plan.spaces[0].beginnings.len(), 2);
}

#[test]
fn with_forwarding_each_template_has_a_namespace_and_keeps_it() {
    let templates = format!("{IDLE},{H2}");
    let prefixes = r#""10.1.0.0/16":"idle","10.2.0.0/16":"two""#;
    let asked = configuration(&templates, prefixes, "default");
    let settings = settings(&format!("{POOLS}{FORWARD}"));
    // the template without a demand on servers must leave b, the only one that has HTTP/2
    let error = plan(&asked, &settings);
    let first = error.unwrap();
    let pool = |plan: &Plan, name: &str| plan.pools[&name.parse::<Name>().unwrap()].clone();
    assert_eq!(pool(&first, "idle"), "c");
    assert_eq!(pool(&first, "two"), "b");
    assert_eq!(pool(&first, "default"), "a");
    let idle = first
        .spaces
        .iter()
        .find(|one| one.namespace.as_deref() == Some("c"));
    let sysctls = &idle.unwrap().sysctls;
    assert_eq!(sysctls["tcp_slow_start_after_idle"], Value::Flag(false));
    assert_eq!(sysctls["tcp_rmem"], Value::Third(65_536));

    let alone = configuration(IDLE, r#""10.1.0.0/16":"idle""#, "default");
    let later = Plan::of(&alone, &settings, &first.pools).unwrap();
    assert_eq!(pool(&later, "idle"), "c");
}
