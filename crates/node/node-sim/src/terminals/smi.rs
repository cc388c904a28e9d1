//! The `nvidia-smi` of a simulated machine: a plain script with all that it says in it.

use std::fmt::Write as _;

use node_agent::drivers::simulated::TenantGpu;

/// Shown instead of the driver's version.
const DRIVER: &str = "simulated";
const CUDA: &str = "12.8";
const MEMORY_USED_MIB: u64 = 4;
const POWER_WATTS: u32 = 70;
const POWER_CAP_WATTS: u32 = 700;

const HEAD: &str = r"
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
";
const LINE: &str =
    "+-----------------------------------------+------------------------+----------------------+\n";
const FRAME: &str =
    "+-----------------------------------------------------------------------------------------+\n";
const PROCESSES: &str = r"
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|  No running processes found                                                             |
";

/// What is the same for all: the options, and how a query is answered from the lines of `gpus`.
const PROGRAM: &str = r#"
query() {
    header=''
    for field in $(echo "$fields" | tr ',' ' '); do
        case "$field" in
        memory.*) unit=' [MiB]' ;;
        utilization.*) unit=' [%]' ;;
        power.*) unit=' [W]' ;;
        index | name | gpu_name | uuid | gpu_uuid | temperature.gpu | driver_version | count | pci.bus_id | gpu_bus_id) unit='' ;;
        *)
            echo "Field \"$field\" is not a valid field to query."
            exit 2
            ;;
        esac
        [ "$units" = yes ] || unit=''
        header="$header${header:+, }$field$unit"
    done
    [ "$noheader" = yes ] || echo "$header"
    gpus | while IFS='|' read -r index name uuid total used bus temperature power; do
        line=''
        for field in $(echo "$fields" | tr ',' ' '); do
            unit=''
            case "$field" in
            index) value="$index" ;;
            name | gpu_name) value="$name" ;;
            uuid | gpu_uuid) value="$uuid" ;;
            memory.total) value="$total" unit=' MiB' ;;
            memory.used) value="$used" unit=' MiB' ;;
            memory.free) value="$((total - used))" unit=' MiB' ;;
            memory.reserved) value=0 unit=' MiB' ;;
            utilization.*) value=0 unit=' %' ;;
            temperature.gpu) value="$temperature" ;;
            power.*) value="$power" unit=' W' ;;
            driver_version) value="$driver" ;;
            count) value="$count" ;;
            *bus_id) value="$bus" ;;
            *) value='[N/A]' ;;
            esac
            [ "$units" = yes ] || unit=''
            line="$line${line:+, }$value$unit"
        done
        echo "$line"
    done
}

fields='' format='' noheader=no units=yes list=no
while [ $# -gt 0 ]; do
    case "$1" in
    -L | --list-gpus) list=yes ;;
    --query-gpu=*) fields="${1#*=}" ;;
    --query-gpu) fields="${2:-}" && shift ;;
    --format=*) format="${1#*=}" ;;
    --format) format="${2:-}" && shift ;;
    *)
        echo "nvidia-smi of a simulated machine: it knows -L, and --query-gpu=... with --format=csv[,noheader][,nounits]."
        case "$1" in -h | --help) exit 0 ;; *) exit 2 ;; esac
        ;;
    esac
    shift
done
if [ "$count" = 0 ]; then
    echo 'No devices were found'
    exit 6
fi
if [ "$list" = yes ]; then
    gpus | while IFS='|' read -r index name uuid rest; do echo "GPU $index: $name (UUID: $uuid)"; done
elif [ -n "$fields" ]; then
    case ",$format," in
    *,csv,*) ;;
    *)
        echo '"--format=" switch is missing. "csv" is the only one that is known here.'
        exit 2
        ;;
    esac
    case ",$format," in *,noheader,*) noheader=yes ;; esac
    case ",$format," in *,nounits,*) units=no ;; esac
    query
else
    date
    table
fi
"#;

/// The script for these GPUs, in this order.
pub fn script(gpus: &[TenantGpu]) -> String {
    let lines: String = (0..).zip(gpus).map(|(index, gpu)| facts(index, gpu)).collect();
    let mut script = "#!/bin/sh\n# Written by the simulator: these GPUs do not exist.\nset -f\n".to_owned();
    let _ = write!(script, "driver={DRIVER}\ncount={}\n", gpus.len());
    let _ = write!(script, "gpus() {{\n    cat <<'END'\n{lines}END\n}}\n");
    let _ = write!(script, "table() {{\n    cat <<'END'\n{}END\n}}\n", table(gpus));
    script + PROGRAM
}

/// What the script reads about one.
fn facts(index: usize, gpu: &TenantGpu) -> String {
    let (name, memory) = (&gpu.reading.model, gpu.reading.memory_mib);
    let (bus, temperature) = (bus_id(gpu), celsius(gpu));
    format!("{index}|{name}|{}|{memory}|{MEMORY_USED_MIB}|{bus}|{temperature}|{POWER_WATTS}.00\n", gpu.uuid)
}

/// With a domain of eight digits, as the vendor writes it.
fn bus_id(gpu: &TenantGpu) -> String {
    format!("0000{}", gpu.reading.pci_address.to_uppercase())
}

fn celsius(gpu: &TenantGpu) -> i32 {
    gpu.reading.temperature_celsius.unwrap_or_default()
}

fn table(gpus: &[TenantGpu]) -> String {
    let version = gpus.first().map_or("", |gpu| gpu.reading.driver.as_str());
    let mut table = format!(
        "{FRAME}| NVIDIA-SMI {version:<23}Driver Version: {DRIVER:<15}CUDA Version: {CUDA:<9}|{HEAD}"
    );
    for (index, gpu) in gpus.iter().enumerate() {
        let (name, memory) = (&gpu.reading.model, gpu.reading.memory_mib);
        let _ = write!(
            table,
            "| {index:>3}  {name:<30.30} On  |   {} Off |                    0 |\n\
             | N/A  {:>3}C    P0            {POWER_WATTS:>3}W / {POWER_CAP_WATTS:>4}W | {:>7}MiB / {memory:>6}MiB |      0%      Default |\n\
             |                                         |                        |             Disabled |\n{LINE}",
            bus_id(gpu),
            celsius(gpu),
            MEMORY_USED_MIB,
        );
    }
    format!("{table}\n{FRAME}{}{FRAME}", PROCESSES.trim_start_matches('\n'))
}

#[cfg(test)]
mod tests {
    use node_proto::catalog::GpuReading;

    use super::*;

    fn gpus(count: usize) -> Vec<TenantGpu> {
        let gpu = |index| TenantGpu {
            uuid: format!("GPU-{index}"),
            reading: GpuReading {
                pci_address: format!("0000:{index:02x}:00.0"),
                model: "NVIDIA H100 80GB HBM3".to_owned(),
                driver: "570.133.20".to_owned(),
                memory_mib: 81_559,
                temperature_celsius: Some(31),
                utilization_percent: Some(0),
                ecc_uncorrected: Some(0),
            },
        };
        (0..count).map(gpu).collect()
    }

    fn run(count: usize, args: &[&str]) -> (Option<i32>, String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nvidia-smi");
        std::fs::write(&path, script(&gpus(count))).unwrap();
        let run = node_agent::exec::Run::new("/bin/sh".as_ref()).arg(&path).args(args).run().unwrap();
        assert!(run.stderr.is_empty(), "{}", String::from_utf8_lossy(&run.stderr));
        (run.status.code(), run.text())
    }

    #[test]
    fn gpus_are_listed_and_queried_like_by_the_real_one() {
        let list = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)\nGPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n";
        assert_eq!(run(2, &["-L"]), (Some(0), list.to_owned()));
        let query = "--query-gpu=index,name,uuid,memory.total";
        let rows = "0, NVIDIA H100 80GB HBM3, GPU-0, 81559 MiB\n1, NVIDIA H100 80GB HBM3, GPU-1, 81559 MiB\n";
        assert_eq!(run(2, &[query, "--format=csv,noheader"]), (Some(0), rows.to_owned()));
        let with_header = format!("index, name, uuid, memory.total [MiB]\n{rows}");
        assert_eq!(run(2, &[query, "--format=csv"]), (Some(0), with_header));
        let plain =
            ["--query-gpu", "memory.free,pci.bus_id,driver_version", "--format", "csv,noheader,nounits"];
        assert_eq!(run(1, &plain), (Some(0), "81555, 00000000:00:00.0, simulated\n".to_owned()));
    }

    #[test]
    fn what_is_not_known_is_refused() {
        assert_eq!(run(1, &["--query-gpu=name"]).0, Some(2));
        assert_eq!(
            run(1, &["--query-gpu=nonsense", "--format=csv"]),
            (Some(2), "Field \"nonsense\" is not a valid field to query.\n".to_owned())
        );
        assert_eq!(run(1, &["--query-gpu=*", "--format=csv"]).0, Some(2));
        assert_eq!(run(1, &["--reset"]).0, Some(2));
        assert_eq!(run(1, &["--help"]).0, Some(0));
        assert_eq!(run(0, &[]), (Some(6), "No devices were found\n".to_owned()));
    }

    #[test]
    fn the_table_is_straight_and_says_that_it_is_simulated() {
        let (status, text) = run(3, &[]);
        assert_eq!(status, Some(0));
        let lines: Vec<&str> = text.lines().skip(1).filter(|line| !line.is_empty()).collect();
        assert!(lines.iter().all(|line| line.len() == FRAME.trim_end().len()), "{text}");
        assert!(lines[1].contains("Driver Version: simulated"), "{text}");
        assert_eq!(lines.iter().filter(|line| line.contains("NVIDIA H100 80GB HBM3")).count(), 3);
    }
}
