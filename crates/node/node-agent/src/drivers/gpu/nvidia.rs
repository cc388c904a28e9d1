//! What `nvidia-smi` prints when asked for a table.

use std::path::Path;

use node_proto::catalog::{GpuReading, GpuVendor};

use super::{Sample, TOOL_TIMEOUT, pci_address};
use crate::{
    drivers::{Done, DriverError},
    exec::Run,
};

const QUERY: &str = "--query-gpu=pci.bus_id,name,driver_version,memory.total,memory.used,temperature.gpu,\
                     utilization.gpu,ecc.errors.uncorrected.volatile.total";
const FORMAT: &str = "--format=csv,noheader,nounits";
const NAME_CHARS: usize = 100;

pub fn samples_read(tool: &Path) -> Done<Vec<Sample>> {
    let ran = Run::new(tool).args([QUERY, FORMAT]).quiet().timeout(TOOL_TIMEOUT).succeed()?;
    if ran.truncated {
        return Err(DriverError::failed("nvidia-smi printed more than is believable"));
    }
    parse(&ran.text()).map_err(|why| DriverError::failed(format!("nvidia-smi was not understood: {why}")))
}

/// The programs that use a GPU now.
pub fn processes(tool: &Path) -> Done<Vec<u32>> {
    let ran = Run::new(tool).args(["--query-compute-apps=pid", FORMAT]).timeout(TOOL_TIMEOUT).succeed()?;
    let text = ran.text();
    let pid = |line: &str| {
        line.trim().parse().map_err(|_| DriverError::failed("nvidia-smi listed a process that is no number"))
    };
    text.lines().filter(|line| !line.trim().is_empty()).map(pid).collect()
}

fn parse(text: &str) -> Result<Vec<Sample>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(number, line)| row(line).map_err(|why| format!("line {}: {why}", number + 1))).collect()
}

fn row(line: &str) -> Result<Sample, String> {
    let columns: Vec<_> = line.split(',').map(str::trim).collect();
    let [address, name, driver, total, used, temperature, utilization, ecc] = columns.as_slice() else {
        return Err(format!("{} columns instead of 8", columns.len()));
    };
    let named = |text: &str, what: &str| {
        let good = !text.is_empty() && text.len() <= NAME_CHARS && !text.chars().any(char::is_control);
        good.then(|| text.to_owned()).ok_or_else(|| format!("no {what}"))
    };
    Ok(Sample {
        reading: GpuReading {
            pci_address: pci_address(address).ok_or("no PCI address")?,
            model: named(name, "name")?,
            driver: named(driver, "driver version")?,
            memory_mib: value(total, "memory")?.ok_or("no memory")?,
            temperature_celsius: value(temperature, "temperature")?,
            utilization_percent: value(utilization, "utilization")?,
            ecc_uncorrected: value(ecc, "error count")?,
        },
        memory_used_mib: value(used, "used memory")?.unwrap_or(0),
        vendor: GpuVendor::Nvidia,
    })
}

/// A number, or nothing where the card does not have the counter.
fn value<T: std::str::FromStr>(text: &str, what: &str) -> Result<Option<T>, String> {
    if matches!(text, "N/A" | "[N/A]" | "[Not Supported]" | "[Unknown Error]" | "[GPU requires reset]") {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| format!("the {what} is no number"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LINE: &str = "00000000:1B:00.0, NVIDIA H200, 550.54.15, 143771, 12, 34, 5, 0";

    #[test]
    fn a_table_is_read_strictly() {
        let samples =
            parse(&format!("{LINE}\n00000000:3B:00.0, NVIDIA A10, 550.54.15, 23028, 0, 40, [N/A], [N/A]\n"));
        let samples = samples.unwrap();
        assert_eq!(samples[0].reading.pci_address, "0000:1b:00.0");
        assert_eq!((samples[0].reading.memory_mib, samples[0].memory_used_mib), (143_771, 12));
        assert_eq!(
            (samples[1].reading.utilization_percent, samples[1].reading.ecc_uncorrected),
            (None, None)
        );
        assert_eq!(parse("").unwrap(), []);
        for odd in [
            "No devices were found",
            "00000000:1B:00.0, NVIDIA H200, 550.54.15, 143771, 12, hot, 5, 0",
            "00000000:1B:00.0, NVIDIA H200, 550.54.15, [N/A], 12, 34, 5, 0",
            "1B, NVIDIA H200, 550.54.15, 143771, 12, 34, 5, 0",
            "00000000:1B:00.0, , 550.54.15, 143771, 12, 34, 5, 0",
            "00000000:1B:00.0, NVIDIA H200, 550.54.15, 143771, 12, 34, 5, 0, 1",
        ] {
            assert!(parse(odd).is_err(), "{odd}");
        }
    }

    proptest! {
        #[test]
        fn anything_else_is_an_error_and_never_a_panic(text in "\\PC{0,200}") {
            let _ = parse(&text);
            let _ = parse(&LINE.replace("34", &text));
        }
    }
}
