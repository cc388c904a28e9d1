//! What `rocm-smi` prints as JSON. The names of its fields have changed their case over time.

use std::{collections::BTreeMap, path::Path};

use node_proto::catalog::{GpuReading, GpuVendor};
use serde_json::Value;

use super::{Sample, TOOL_TIMEOUT, pci_address};
use crate::{
    drivers::{Done, DriverError, files::read_bounded},
    exec::Run,
};

const ARGS: &[&str] = &[
    "--showbus",
    "--showproductname",
    "--showdriverversion",
    "--showmeminfo",
    "vram",
    "--showtemp",
    "--showuse",
    "--json",
];
const MIB: u64 = 1024 * 1024;

pub fn samples_read(tool: &Path, sysfs: &Path) -> Done<Vec<Sample>> {
    let ran = Run::new(tool).args(ARGS).quiet().timeout(TOOL_TIMEOUT).succeed()?;
    let parsed = if ran.truncated { Err("too long".to_owned()) } else { parse(&ran.text()) };
    let mut samples =
        parsed.map_err(|why| DriverError::failed(format!("rocm-smi was not understood: {why}")))?;
    for sample in &mut samples {
        sample.reading.ecc_uncorrected = uncorrected(sysfs, &sample.reading.pci_address);
    }
    Ok(samples)
}

/// The driver counts errors of the memory controller in a file: `ue: 0`, `ce: 12`.
fn uncorrected(sysfs: &Path, address: &str) -> Option<u64> {
    let path = sysfs.join("bus/pci/devices").join(address).join("ras/umc_err_count");
    let (bytes, _) = read_bounded(&path, 4096).ok()?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    text.lines().find_map(|line| line.trim().strip_prefix("ue:")?.trim().parse().ok())
}

fn parse(text: &str) -> Result<Vec<Sample>, String> {
    // Warnings may come before the object.
    let text = text.find('{').and_then(|at| text.get(at..)).ok_or("no JSON object")?;
    let cards: BTreeMap<String, BTreeMap<String, Value>> =
        serde_json::from_str(text.trim()).map_err(|error| error.to_string())?;
    let driver =
        cards.get("system").and_then(|fields| field(fields, &["driver version"])).unwrap_or_default();
    let cards = cards.iter().filter(|(name, _)| name.starts_with("card"));
    cards.map(|(name, fields)| card(fields, &driver).map_err(|why| format!("{name}: {why}"))).collect()
}

fn field(fields: &BTreeMap<String, Value>, names: &[&str]) -> Option<String> {
    let found =
        names.iter().find_map(|name| fields.iter().find(|(key, _)| key.to_ascii_lowercase() == *name));
    match found? {
        (_, Value::String(text)) if text.len() <= 100 && !text.chars().any(char::is_control) => {
            Some(text.clone())
        }
        (_, Value::Number(number)) => Some(number.to_string()),
        _ => None,
    }
}

fn card(fields: &BTreeMap<String, Value>, driver: &str) -> Result<Sample, String> {
    let bytes = |name: &str| field(fields, &[name]).and_then(|text| text.parse::<u64>().ok());
    // `45.0`: whole degrees are enough.
    let celsius = ["temperature (sensor junction) (c)", "temperature (sensor edge) (c)"];
    let celsius = field(fields, &celsius).and_then(|text| text.split('.').next()?.parse().ok());
    let address = field(fields, &["pci bus"]).and_then(|text| pci_address(&text));
    Ok(Sample {
        reading: GpuReading {
            pci_address: address.ok_or("no PCI address")?,
            model: field(fields, &["card series", "card model"]).ok_or("no name")?,
            driver: driver.to_owned(),
            memory_mib: bytes("vram total memory (b)").ok_or("no memory")? / MIB,
            temperature_celsius: celsius,
            utilization_percent: field(fields, &["gpu use (%)"]).and_then(|text| text.parse().ok()),
            ecc_uncorrected: None,
        },
        memory_used_mib: bytes("vram total used memory (b)").unwrap_or(0) / MIB,
        vendor: GpuVendor::Amd,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CARDS: &str = r#"WARNING: something
        {"card0": {"PCI Bus": "0000:C1:00.0", "Card Series": "AMD Instinct MI300X", "GPU use (%)": "7",
          "Temperature (Sensor junction) (C)": "45.0", "VRAM Total Memory (B)": "206141652992",
          "VRAM Total Used Memory (B)": "297549824"}, "system": {"Driver version": "6.7.0"}}"#;

    #[test]
    fn cards_are_read_strictly() {
        let samples = parse(CARDS).unwrap();
        let reading = &samples[0].reading;
        assert_eq!((reading.pci_address.as_str(), reading.driver.as_str()), ("0000:c1:00.0", "6.7.0"));
        assert_eq!((reading.memory_mib, reading.temperature_celsius), (196_592, Some(45)));
        assert_eq!((reading.utilization_percent, samples[0].memory_used_mib), (Some(7), 283));
        for odd in ["", "{", "[]", r#"{"card0": 1}"#, r#"{"card0": {}}"#, r#"{"card0": {"PCI Bus": "x"}}"#] {
            assert!(parse(odd).is_err(), "{odd}");
        }
    }

    proptest! {
        #[test]
        fn a_damaged_answer_is_no_panic(at in 0..CARDS.len(), with in "\\PC{0,20}") {
            if CARDS.is_char_boundary(at) {
                let _ = parse(&format!("{}{}{}", &CARDS[..at], with, &CARDS[at..]));
                let _ = parse(&CARDS[..at]);
            }
        }
    }
}
