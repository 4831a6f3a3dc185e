terraform {
  required_version = ">= 1.10"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "5.100.0"
    }
  }

  # Bucket, key and region are of an installation: backend.hcl.example says how.
  backend "s3" {}
}
